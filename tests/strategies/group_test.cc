// Geometry of groups of ranks: head shares, merged rows, and where queries meet keys.
#include "strategies/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "support/random_problem.h"

namespace longspan {
namespace {

using test::draw;
using test::one_in;
using test::Random;
using testing::ElementsAre;

constexpr PartitionKind kKinds[] = {PartitionKind::kContiguous, PartitionKind::kZigzag,
                                    PartitionKind::kStriped, PartitionKind::kBalanced};

TEST(HeadShare, DealsEveryQueryHeadOnceAndKeyHeadsWhole) {
  Random random(61);
  for (int i = 0; i < 20'000; ++i) {
    Problem problem;
    problem.heads_kv = draw(random, 1, 20);
    problem.heads_q = problem.heads_kv * draw(random, 1, 9);
    const int ways = static_cast<int>(draw(random, 1, 24));
    const int64_t group = problem.group();
    int64_t next_q = 0;
    int64_t last_kv = -1;
    for (int index = 0; index < ways; ++index) {
      const HeadShare share = head_share(problem, ways, index);
      SCOPED_TRACE(testing::Message() << problem.heads_q << "/" << problem.heads_kv << " over "
                                      << ways << ", member " << index);
      ASSERT_EQ(share.q_begin, next_q) << "in order, without gap or overlap";
      next_q = share.q_end;
      ASSERT_EQ(share.q_heads() > 0, share.kv_heads() > 0);
      if (share.q_heads() == 0) continue;
      ASSERT_EQ(share.q_begin / group, share.kv_begin) << "its queries read its keys";
      ASSERT_EQ((share.q_end - 1) / group, share.kv_end - 1);
      ASSERT_GE(share.kv_begin, last_kv) << "members that share a head are neighbours";
      if (shares_kv_heads(problem, ways)) {
        ASSERT_EQ(share.kv_heads(), 1);
      } else {
        ASSERT_GT(share.kv_begin, last_kv) << "not shared";
        ASSERT_EQ(share.q_begin % group, 0);
        ASSERT_EQ(share.q_end % group, 0);
      }
      last_kv = share.kv_end - 1;
    }
    ASSERT_EQ(next_q, problem.heads_q);
  }
}

TEST(HeadShare, SharesAreAsEvenAsTheyCanBe) {
  Random random(62);
  for (int i = 0; i < 5'000; ++i) {
    Problem problem;
    problem.heads_kv = draw(random, 1, 20);
    problem.heads_q = problem.heads_kv * draw(random, 1, 9);
    const int ways = static_cast<int>(draw(random, 1, 24));
    int64_t most = 0;
    for (int m = 0; m < ways; ++m) most = std::max(most, head_share(problem, ways, m).q_heads());
    const int64_t kv = problem.heads_kv;
    // Whole key heads, or the query heads of one among the fewest ranks that share one.
    const int64_t bound = kv >= ways ? (kv + ways - 1) / ways * problem.group()
                                     : (problem.group() + ways / kv - 1) / (ways / kv);
    ASSERT_EQ(most, bound) << problem.heads_q << "/" << kv << " over " << ways;
  }
}

using Token = std::pair<int32_t, int64_t>;  // sequence and position

/// The token of every row; rows of no run hold none.
std::map<int64_t, Token> tokens_of(const Rows& rows) {
  std::map<int64_t, Token> tokens;
  for (const longspan::Run& run : rows.runs) {
    EXPECT_EQ(run.valid, run.tokens.size()) << "valid tokens alone";
    for (int64_t i = 0; i < run.valid; ++i) {
      EXPECT_LT(run.row + i, rows.rows);
      EXPECT_TRUE(tokens.emplace(run.row + i, Token{run.sequence, run.tokens.at(i)}).second);
    }
  }
  return tokens;
}

std::set<Token> set_of(const Rows& rows) {
  std::set<Token> tokens;
  for (const auto& [row, token] : tokens_of(rows)) EXPECT_TRUE(tokens.insert(token).second);
  return tokens;
}

void expect_without_gaps(const Rows& rows) {
  int64_t next = 0;
  for (const longspan::Run& run : rows.runs) {
    ASSERT_EQ(run.row, next);
    next += run.valid;
  }
  ASSERT_EQ(rows.rows, next);
}

/// A partition of a random problem.
struct Case {
  Problem problem;
  int ranks = 1;
  PartitionKind kind = PartitionKind::kContiguous;
  Partition partition;

  std::string text() const {
    return problem.text() + " " + std::string(name(kind)) + " " + std::to_string(ranks);
  }
};

Case random_case(Random& random, int64_t longest = 24) {
  Problem problem = test::random_problem(random, {.sequences = 4, .longest = longest});
  const int ranks = static_cast<int>(draw(random, 1, 8));
  const PartitionKind kind = test::pick(random, kKinds);
  Partition partition = *Partition::make(problem, kind, ranks);
  return {std::move(problem), ranks, kind, std::move(partition)};
}

TEST(Rows, ValidRowsAreTheTokensOfAShardAtItsRows) {
  Random random(63);
  for (int i = 0; i < 500; ++i) {
    const Case c = random_case(random);
    SCOPED_TRACE(c.text());
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Shard& shard = c.partition.k(rank);
      const Rows rows = valid_rows(shard);
      ASSERT_EQ(rows.rows, shard.rows);
      const std::map<int64_t, Token> tokens = tokens_of(rows);
      const std::vector<int64_t> positions = c.partition.k_positions(rank);
      int64_t valid = 0;
      for (const longspan::Run& run : shard.runs) valid += run.valid;
      ASSERT_EQ(static_cast<int64_t>(tokens.size()), valid);
      for (const auto& [row, token] : tokens) {
        ASSERT_EQ(token.second, positions[static_cast<size_t>(row)]);
        ASSERT_LT(token.second,
                  c.problem.lengths.sequences[static_cast<size_t>(token.first)].k_length);
      }
      const Rows compact = compacted(rows);
      expect_without_gaps(compact);
      ASSERT_EQ(set_of(compact), set_of(rows));
    }
  }
}

TEST(Rows, MergedRowsHoldTheTokensOfAllMembersInOrder) {
  Random random(64);
  for (int i = 0; i < 1000; ++i) {
    const Case c = random_case(random);
    SCOPED_TRACE(c.text());
    const int first = static_cast<int>(draw(random, 0, c.ranks - 1));
    const int count = static_cast<int>(draw(random, 1, c.ranks - first));
    const Rows merged = merged_rows(c.partition, SideOf::kQuery, first, count);
    expect_without_gaps(merged);
    std::set<Token> expected;
    for (int rank = first; rank < first + count; ++rank) {
      const std::set<Token> own = set_of(valid_rows(c.partition.q(rank)));
      expected.insert(own.begin(), own.end());
    }
    ASSERT_EQ(set_of(merged), expected);
    for (size_t r = 1; r < merged.runs.size(); ++r) {
      const longspan::Run& before = merged.runs[r - 1];
      const longspan::Run& run = merged.runs[r];
      ASSERT_LE(before.sequence, run.sequence);
      if (before.sequence != run.sequence) continue;
      ASSERT_LT(before.tokens.begin, run.tokens.begin);
      ASSERT_FALSE(before.tokens.stride == 1 && run.tokens.stride == 1 &&
                   before.tokens.end == run.tokens.begin)
          << "neighbours become one";
    }
  }
}

TEST(Rows, AllRanksTogetherAreWholeSequences) {
  Random random(65);
  for (int i = 0; i < 500; ++i) {
    const Case c = random_case(random);
    const Rows all = merged_rows(c.partition, SideOf::kKey, 0, c.ranks);
    std::vector<longspan::Run> whole;
    int64_t row = 0;
    for (size_t s = 0; s < c.problem.lengths.sequences.size(); ++s) {
      const int64_t length = c.problem.lengths.sequences[s].k_length;
      if (length > 0) whole.push_back({row, static_cast<int32_t>(s), {0, length}, length});
      row += length;
    }
    ASSERT_EQ(all.runs, whole) << "combs of stripes close: " << c.text();
  }
}

TEST(Rows, StripesOfAPartOfTheRanksStayStripes) {
  const Problem problem = *parse_problem("dtype=f32 heads=1/1 dim=1 lengths=10");
  const Partition partition = *Partition::make(problem, PartitionKind::kStriped, 4);
  EXPECT_THAT(merged_rows(partition, SideOf::kQuery, 2, 2).runs,
              ElementsAre(longspan::Run{0, 0, {2, 10, 4}, 2}, longspan::Run{2, 0, {3, 11, 4}, 2}));
}

TEST(Rows, LocateFindsEveryRunOfAMember) {
  Random random(66);
  for (int i = 0; i < 1000; ++i) {
    const Case c = random_case(random);
    SCOPED_TRACE(c.text());
    const int first = static_cast<int>(draw(random, 0, c.ranks - 1));
    const int count = static_cast<int>(draw(random, 1, c.ranks - first));
    const Rows merged = merged_rows(c.partition, SideOf::kQuery, first, count);
    const std::map<int64_t, Token> tokens = tokens_of(merged);
    for (int rank = first; rank < first + count; ++rank) {
      for (const longspan::Run& run : valid_rows(c.partition.q(rank)).runs) {
        const Place place = locate(merged, run);
        for (int64_t t = 0; t < run.valid; ++t) {
          const auto found = tokens.find(place.row + t * place.step);
          ASSERT_NE(found, tokens.end());
          ASSERT_EQ(found->second, (Token{run.sequence, run.tokens.at(t)}));
        }
      }
    }
  }
}

using Pair = std::pair<Token, Token>;

std::set<Pair> visible(const Problem& problem, const Rows& q, const Rows& k) {
  std::set<Pair> pairs;
  for (const Token& query : set_of(q)) {
    const Band band = problem.band(problem.lengths.sequences[static_cast<size_t>(query.first)]);
    for (const Token& key : set_of(k)) {
      const bool sees = query.first == key.first && band.sees(query.second, key.second);
      if (sees) pairs.emplace(query, key);
    }
  }
  return pairs;
}

/// The pairs of tiles whose rows are looked up in the two row maps; each pair once.
std::set<Pair> covered(const std::vector<PlacedTile>& tiles, const std::map<int64_t, Token>& q,
                       const std::map<int64_t, Token>& k) {
  std::set<Pair> pairs;
  for (const PlacedTile& placed : tiles) {
    const Tile& tile = placed.tile;
    EXPECT_GT(area(tile), 0) << "empty tiles are not emitted";
    for (int64_t i = 0; i < tile.q.size(); ++i) {
      EXPECT_EQ(q.at(placed.q_row + i), (Token{tile.sequence, tile.q.at(i)}));
      for (int64_t j = 0; j < tile.k.size(); ++j) {
        EXPECT_EQ(k.at(placed.k_row + j), (Token{tile.sequence, tile.k.at(j)}));
        if (!tile.band.sees(i, j)) continue;
        EXPECT_TRUE(pairs.emplace(q.at(placed.q_row + i), k.at(placed.k_row + j)).second);
      }
    }
  }
  return pairs;
}

Rows random_rows(Random& random, const Case& c, SideOf side, int count) {
  const int first = static_cast<int>(draw(random, 0, c.ranks - count));
  if (count > 1) return merged_rows(c.partition, side, first, count);
  return valid_rows(side == SideOf::kQuery ? c.partition.q(first) : c.partition.k(first));
}

TEST(Meet, TilesAreTheVisiblePairsAndNeededTheVisibleKeys) {
  Random random(67);
  for (int i = 0; i < 1000; ++i) {
    const Case c = random_case(random, 16);
    SCOPED_TRACE(c.text());
    const int count = static_cast<int>(draw(random, 1, c.ranks));
    const Rows q = random_rows(random, c, SideOf::kQuery, count);
    const Rows k = random_rows(random, c, SideOf::kKey, count);
    const Meeting meeting = meet(c.problem, q, k);
    const std::set<Pair> expected = visible(c.problem, q, k);
    ASSERT_EQ(covered(meeting.tiles, tokens_of(q), tokens_of(k)), expected);

    std::set<Token> keys;
    for (const Pair& pair : expected) keys.insert(pair.second);
    ASSERT_EQ(set_of(meeting.needed), keys) << "no key more and none less";
    expect_without_gaps(meeting.needed);
    ASSERT_EQ(meeting.source.size(), meeting.needed.runs.size());
    const std::map<int64_t, Token> own = tokens_of(k);
    for (size_t r = 0; r < meeting.source.size(); ++r) {
      const longspan::Run& run = meeting.needed.runs[r];
      for (int64_t t = 0; t < run.valid; ++t) {
        ASSERT_EQ(own.at(meeting.source[r] + t), (Token{run.sequence, run.tokens.at(t)}));
      }
    }
    ASSERT_EQ(covered(on_needed_rows(meeting), tokens_of(q), tokens_of(meeting.needed)), expected);
  }
}

TEST(Meet, CausalRanksNeedThePastAlone) {
  const Problem problem = *parse_problem("dtype=f32 heads=1/1 dim=1 lengths=40 mask=causal");
  const Partition partition = *Partition::make(problem, PartitionKind::kContiguous, 4);
  const Rows q = valid_rows(partition.q(1));
  const Rows past = valid_rows(partition.k(0));
  EXPECT_THAT(meet(problem, q, past).needed.runs, ElementsAre(longspan::Run{0, 0, {0, 10}, 10}));
  EXPECT_TRUE(meet(problem, past, q).tiles.empty()) << "the future is not seen";
  EXPECT_TRUE(meet(problem, past, q).needed.runs.empty());
}

}  // namespace
}  // namespace longspan
