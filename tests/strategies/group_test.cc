// Geometry of groups of ranks: head shares and merged rows.
#include "strategies/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "strategies/tokens.h"

namespace longspan {
namespace {

using test::Case;
using test::expect_without_gaps;
using test::random_case;
using test::set_of;
using test::Token;
using test::tokens_of;
using testing::ElementsAre;
using testkit::Random;

TEST(HeadShare, DealsEveryQueryHeadOnceAndKeyHeadsWhole) {
  Random random(61);
  for (int i = 0; i < 20'000; ++i) {
    Problem problem;
    problem.heads_kv = random.between(1, 20);
    problem.heads_q = problem.heads_kv * random.between(1, 9);
    const int ways = static_cast<int>(random.between(1, 24));
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
    problem.heads_kv = random.between(1, 20);
    problem.heads_q = problem.heads_kv * random.between(1, 9);
    const int ways = static_cast<int>(random.between(1, 24));
    int64_t most = 0;
    for (int m = 0; m < ways; ++m) most = std::max(most, head_share(problem, ways, m).q_heads());
    const int64_t kv = problem.heads_kv;
    // Whole key heads, or the query heads of one among the fewest ranks that share one.
    const int64_t bound = kv >= ways ? (kv + ways - 1) / ways * problem.group()
                                     : (problem.group() + ways / kv - 1) / (ways / kv);
    ASSERT_EQ(most, bound) << problem.heads_q << "/" << kv << " over " << ways;
  }
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
    const int first = static_cast<int>(random.between(0, c.ranks - 1));
    const int count = static_cast<int>(random.between(1, c.ranks - first));
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
    const int first = static_cast<int>(random.between(0, c.ranks - 1));
    const int count = static_cast<int>(random.between(1, c.ranks - first));
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

/// Tokens of one sequence, in rows of their own.
Rows rows_of(const std::vector<std::pair<int64_t, int64_t>>& intervals, int32_t sequence = 0) {
  Rows rows;
  for (const auto& [begin, end] : intervals) {
    rows.runs.push_back({rows.rows, sequence, {begin, end, 1}, end - begin});
    rows.rows += end - begin;
  }
  return rows;
}

TEST(SharedRows, AreWhereBothHaveTheTokens) {
  const auto shared = shared_rows(rows_of({{10, 20}, {30, 50}}), rows_of({{0, 12}, {15, 40}}));
  std::vector<std::array<int64_t, 3>> places;
  for (const SharedRows& s : shared) places.push_back({s.a_row, s.b_row, s.rows});
  EXPECT_THAT(places,
              ElementsAre(std::array<int64_t, 3>{0, 10, 2}, std::array<int64_t, 3>{5, 12, 5},
                          std::array<int64_t, 3>{10, 27, 10}));
  EXPECT_TRUE(shared_rows(rows_of({{0, 9}}), rows_of({{0, 9}}, 1)).empty());
}

TEST(Without, KeepsTheRowsOfTheRest) {
  const Rows rest = without(rows_of({{10, 20}, {30, 50}}), rows_of({{0, 12}, {15, 40}}));
  ASSERT_EQ(rest.runs.size(), 2u);
  EXPECT_EQ(rest.rows, 30);
  EXPECT_EQ(rest.runs[0], (longspan::Run{2, 0, {12, 15, 1}, 3}));
  EXPECT_EQ(rest.runs[1], (longspan::Run{20, 0, {40, 50, 1}, 10}));
  EXPECT_TRUE(without(rest, rows_of({{0, 100}})).runs.empty());
}

}  // namespace
}  // namespace longspan
