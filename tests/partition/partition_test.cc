// What holds for every partition of every problem: ownership, inverses, runs, valid counts.
#include "longspan/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "testkit/random_problem.h"
#include "testkit/visible.h"

namespace longspan {
namespace {

using testkit::Random;

constexpr PartitionKind kKinds[] = {PartitionKind::kContiguous, PartitionKind::kZigzag,
                                    PartitionKind::kStriped, PartitionKind::kBalanced};

/// One side of a problem and partition.
struct Side {
  bool keys;

  int64_t length(const Sequence& s) const { return keys ? s.k_length : s.q_length; }
  int64_t extent(const Sequence& s) const { return keys ? s.k_extent : s.q_extent; }
  int64_t offset(const Sequence& s) const { return keys ? s.k_offset : s.q_offset; }
  int64_t tokens(const Lengths& l) const { return keys ? l.tokens_k : l.tokens_q; }
  const Shard& shard(const Partition& p, int rank) const { return keys ? p.k(rank) : p.q(rank); }
  std::vector<int64_t> indices(const Partition& p, const Problem& problem, int rank) const {
    return keys ? p.k_indices(problem, rank) : p.q_indices(problem, rank);
  }
  std::vector<int64_t> positions(const Partition& p, int rank) const {
    return keys ? p.k_positions(rank) : p.q_positions(rank);
  }
  std::vector<int64_t> inverse(const Partition& p, const Problem& problem) const {
    return keys ? p.k_inverse(problem) : p.q_inverse(problem);
  }
};

/// The sequence and position of a global row; unused rows are a last sequence of length 0.
struct Token {
  size_t sequence = 0;
  int64_t position = 0;
  bool valid = false;
};

std::vector<Token> all_tokens(const Lengths& lengths, Side side) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < lengths.sequences.size(); ++i) {
    const Sequence& s = lengths.sequences[i];
    for (int64_t t = 0; t < side.extent(s); ++t) tokens.push_back({i, t, t < side.length(s)});
  }
  const auto used = static_cast<int64_t>(tokens.size());
  for (int64_t t = used; t < side.tokens(lengths); ++t) {
    tokens.push_back({lengths.sequences.size(), t - used, false});
  }
  return tokens;
}

void expect_runs_fit(const Shard& shard) {
  int64_t row = 0;
  int32_t sequence = 0;
  for (const longspan::Run& run : shard.runs) {
    ASSERT_EQ(run.row, row) << "runs lie one behind the other";
    ASSERT_GE(run.sequence, sequence) << "ordered by sequence";
    ASSERT_GT(run.tokens.size(), 0) << "without empty ones";
    ASSERT_EQ(run.tokens, run.tokens.slice(0, run.tokens.size())) << "the canonical form";
    ASSERT_GE(run.valid, 0);
    ASSERT_LE(run.valid, run.tokens.size());
    row += run.tokens.size();
    sequence = run.sequence;
  }
  ASSERT_EQ(shard.rows, row);
}

void expect_batch_fits(const Problem& problem, const Shard& shard) {
  ASSERT_TRUE(shard.batch == 1 ||
              shard.batch == static_cast<int64_t>(problem.lengths.sequences.size()));
  if (shard.batch == 1) return;
  ASSERT_NE(problem.layout, Layout::kTHD);
  ASSERT_EQ(shard.rows % shard.batch, 0);
  for (const longspan::Run& run : shard.runs) {
    const int64_t rows = shard.rows / shard.batch;
    ASSERT_EQ(run.row / rows, run.sequence);
    ASSERT_EQ((run.row + run.tokens.size() - 1) / rows, run.sequence);
  }
}

/// Rows of runs hold the tokens that the indices and positions say, and `valid` counts them.
void expect_rows_hold_their_tokens(const Problem& problem, const Partition& partition, Side side,
                                   int rank, const std::vector<Token>& tokens) {
  const Shard& shard = side.shard(partition, rank);
  const std::vector<int64_t> indices = side.indices(partition, problem, rank);
  const std::vector<int64_t> positions = side.positions(partition, rank);
  ASSERT_EQ(static_cast<int64_t>(indices.size()), shard.rows);
  ASSERT_EQ(static_cast<int64_t>(positions.size()), shard.rows);
  for (const longspan::Run& run : shard.runs) {
    for (int64_t i = 0; i < run.tokens.size(); ++i) {
      const auto row = static_cast<size_t>(run.row + i);
      const Token& token = tokens.at(static_cast<size_t>(indices[row]));
      ASSERT_EQ(token.sequence, static_cast<size_t>(run.sequence));
      ASSERT_EQ(token.position, run.tokens.at(i));
      ASSERT_EQ(token.position, positions[row]);
      ASSERT_EQ(token.valid, i < run.valid);
    }
  }
}

/// Shards a tensor whose row r holds r, and puts it together again.
void expect_round_trip(const Problem& problem, const Partition& partition, Side side) {
  std::vector<int64_t> concatenated;
  for (int rank = 0; rank < partition.ranks(); ++rank) {
    const std::vector<int64_t> indices = side.indices(partition, problem, rank);
    concatenated.insert(concatenated.end(), indices.begin(), indices.end());
  }
  const std::vector<int64_t> inverse = side.inverse(partition, problem);
  ASSERT_EQ(static_cast<int64_t>(inverse.size()), side.tokens(problem.lengths));
  ASSERT_EQ(concatenated.size(), inverse.size()) << "every row is owned once";
  for (size_t row = 0; row < inverse.size(); ++row) {
    ASSERT_GE(inverse[row], 0) << "row " << row << " is owned by nobody";
    ASSERT_EQ(concatenated.at(static_cast<size_t>(inverse[row])), static_cast<int64_t>(row));
  }
}

void expect_sound(const Problem& problem, PartitionKind kind, int ranks) {
  const Result<Partition> made = Partition::make(problem, kind, ranks);
  ASSERT_TRUE(made.ok());
  ASSERT_EQ(made->kind(), kind);
  ASSERT_EQ(made->ranks(), ranks);
  for (const Side side : {Side{false}, Side{true}}) {
    const std::vector<Token> tokens = all_tokens(problem.lengths, side);
    for (int rank = 0; rank < ranks; ++rank) {
      const Shard& shard = side.shard(*made, rank);
      expect_runs_fit(shard);
      expect_batch_fits(problem, shard);
      expect_rows_hold_their_tokens(problem, *made, side, rank, tokens);
    }
    expect_round_trip(problem, *made, side);
  }
}

TEST(Partition, EveryRowIsOwnedOnceAndFoundAgain) {
  Random random(51);
  for (int i = 0; i < 1500; ++i) {
    // Short sequences leave ranks without tokens.
    const Problem problem = testkit::random_problem(
        random, {.sequences = 5, .length = random.chance(1.0 / 3) ? 3 : 40});
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const PartitionKind kind = random.one_of(kKinds);
      SCOPED_TRACE(problem.text() + " " + std::string(name(kind)) + " " + std::to_string(ranks));
      expect_sound(problem, kind, ranks);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

/// Bit by bit what both sides own of sequences whose lengths and extents agree.
TEST(Partition, QueriesAndKeysAgreeWhereLengthsAndExtentsDo) {
  Random random(52);
  for (int i = 0; i < 300; ++i) {
    Problem problem = testkit::random_problem(random, {.sequences = 5, .length = 30});
    Lengths& lengths = problem.lengths;
    for (Sequence& s : lengths.sequences) {
      s.k_length = s.q_length;
      s.k_extent = s.q_extent;
      s.k_offset = s.q_offset;
    }
    lengths.tokens_k = lengths.tokens_q;
    for (const PartitionKind kind : kKinds) {
      const int ranks = static_cast<int>(random.between(1, 9));
      const Partition partition = *Partition::make(problem, kind, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(partition.q(rank).runs, partition.k(rank).runs) << problem.text();
        ASSERT_EQ(partition.q(rank).batch, partition.k(rank).batch) << problem.text();
      }
    }
  }
}

/// Visible pairs of the most expensive single query.
int64_t widest_query(const Problem& problem) {
  int64_t widest = 0;
  for (size_t s = 0; s < problem.lengths.sequences.size(); ++s) {
    for (int64_t q = 0; q < problem.lengths.sequences[s].q_length; ++q) {
      widest = std::max(widest, testkit::keys_seen(problem, static_cast<int64_t>(s), q));
    }
  }
  return widest;
}

TEST(Partition, BalancedSharesDifferByOneQueryAtMost) {
  Random random(53);
  for (int i = 0; i < 2000; ++i) {
    const Problem problem = testkit::random_problem(random, {.sequences = 8, .length = 60});
    const int ranks = static_cast<int>(random.between(1, 9));
    const Partition partition = *Partition::make(problem, PartitionKind::kBalanced, ranks);
    const int64_t total = problem.visible_pairs();
    const int64_t widest = widest_query(problem);
    int64_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t pairs = 0;
      for (const longspan::Run& run : partition.q(rank).runs) {
        if (run.valid == 0) continue;
        for (int64_t t = 0; t < run.valid; ++t) {
          pairs += testkit::keys_seen(problem, run.sequence, run.tokens.at(t));
        }
      }
      sum += pairs;
      ASSERT_LE(std::abs(pairs * ranks - total), (widest + 1) * ranks)
          << "rank " << rank << " of " << ranks << " has " << pairs << " of " << total << ": "
          << problem.text();
    }
    ASSERT_EQ(sum, total);
  }
}

}  // namespace
}  // namespace longspan
