// Where the queries of one rank or group meet the keys of another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "strategies/group.h"
#include "strategies/tokens.h"
#include "testkit/visible.h"

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

using Pair = std::pair<Token, Token>;

std::set<Pair> visible(const Problem& problem, const Rows& q, const Rows& k) {
  std::set<Pair> pairs;
  for (const Token& query : set_of(q)) {
    for (const Token& key : set_of(k)) {
      const bool sees = query.first == key.first &&
                        testkit::visible(problem, query.first, query.second, key.second);
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
  const int first = static_cast<int>(random.between(0, c.ranks - count));
  if (count > 1) return merged_rows(c.partition, side, first, count);
  return valid_rows(side == SideOf::kQuery ? c.partition.q(first) : c.partition.k(first));
}

TEST(Meet, TilesAreTheVisiblePairsAndNeededTheVisibleKeys) {
  Random random(67);
  for (int i = 0; i < 1000; ++i) {
    const Case c = random_case(random, 16);
    SCOPED_TRACE(c.text());
    const int count = static_cast<int>(random.between(1, c.ranks));
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
