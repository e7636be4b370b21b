// Which launches tiles become: few, of the fast kinds, and with few graphs.
#include <gtest/gtest.h>

#include <random>
#include <unordered_set>
#include <vector>

#include "providers/cudnn/groups.h"
#include "providers/cudnn/pieces.h"
#include "providers/cudnn/plan.h"
#include "providers/cudnn/tiles.h"

namespace longspan::cudnn {
namespace {

TEST(CudnnGroups, EqualSequencesAreABatch) {
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const TileProblem p = problem(direction, 80, 80);
    const auto tiles = pack({10, 10, 10, 10, 10, 10, 10, 10}, std::vector<int64_t>(8, 10), true);
    const auto groups = make_groups(p, tiles);
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_FALSE(groups[0].ragged);
    EXPECT_EQ(groups[0].batch, 8);
    EXPECT_EQ(groups[0].mask, (Mask{.right = 0}));
  }
}

TEST(CudnnGroups, UnequalSequencesAreOneRaggedLaunch) {
  const std::vector<int64_t> lengths = {10, 0, 33, 1, 70, 128, 2, 90};
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const TileProblem p = problem(direction, 400, 400);
    for (const bool causal : {false, true}) {
      const auto groups = make_groups(p, pack(lengths, lengths, causal));
      ASSERT_EQ(groups.size(), 1u);
      EXPECT_TRUE(groups[0].ragged);
      EXPECT_EQ(groups[0].entries.size(), 7u);
      EXPECT_EQ(groups[0].batch, 8);
      EXPECT_EQ(groups[0].sq, 128);
    }
    const auto windows = make_groups(p, pack(lengths, lengths, true, 20));
    ASSERT_EQ(windows.size(), 1u);
    EXPECT_EQ(windows[0].mask, (Mask{.left = 21, .right = 0}));
  }
}

TEST(CudnnGroups, BottomRightPacksAreOneLaunchForwardAndTwoBackward) {
  const std::vector<int64_t> lengths = {10, 20, 33, 1, 70, 100};
  const std::vector<int64_t> keys = {15, 90, 34, 101, 72, 110};
  const auto tiles = pack(lengths, keys, true);
  const auto forward = make_groups(problem(Direction::kForward, 300, 500), tiles);
  ASSERT_EQ(forward.size(), 1u);
  EXPECT_EQ(forward[0].mask, (Mask{.right = 0, .bottom_right = true}));
  const auto backward = make_groups(problem(Direction::kBackward, 300, 500), tiles);
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_EQ(backward[0].mask, Mask());
  EXPECT_EQ(backward[1].mask, (Mask{.right = 0}));
}

TEST(CudnnGroups, RingTilesOfOneSequenceAreDense) {
  // The diagonal step of a zigzag ring: both chunks of queries against both of keys.
  const std::vector<PlacedTile> tiles = {placed(0, 512, 0, 512, {-kUnbounded, 0}),
                                         placed(512, 512, 0, 512, {}),
                                         placed(512, 512, 512, 512, {-kUnbounded, 0})};
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const auto groups = make_groups(problem(direction, 1024, 1024), tiles);
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_EQ(groups[0].batch, 2);
    EXPECT_EQ(groups[0].mask, (Mask{.right = 0}));
    EXPECT_EQ(groups[1].mask, Mask());
    for (const Group& g : groups) EXPECT_FALSE(g.ragged || g.padded);
  }
}

TEST(CudnnGroups, WideBandsOfBackwardAreCutWhereItPays) {
  const TileProblem p = problem(Direction::kBackward, 8192, 8192);
  const auto cut = make_groups(p, std::vector{placed(0, 8192, 0, 8192, {-1024, 1024})});
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].mask, (Mask{.left = 1025}));
  EXPECT_EQ(cut[0].entries[0], (Entry{0, 0, 2048, 1024}));
  EXPECT_TRUE(cut[0].padded);  // more rows than keys under a left bound
  EXPECT_EQ(cut[1].mask, (Mask{.left = 2049, .right = 0}));
  EXPECT_EQ(cut[1].entries[0], (Entry{0, 1024, 8192, 7168}));
  const auto whole = make_groups(p, std::vector{placed(0, 256, 0, 256, {-16, 16})});
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].mask, (Mask{.left = 17, .right = 16}));
}

TEST(CudnnGroups, LengthsOnTheDeviceWhereBackwardNeedsThem) {
  const auto padded = [](int64_t nq, int64_t nk, Band band, int64_t dim_qk, int64_t dim_v) {
    TileProblem p = problem(Direction::kBackward, nq, nk);
    p.dim_qk = dim_qk;
    p.dim_v = dim_v;
    const auto groups = make_groups(p, std::vector{placed(0, nq, 0, nk, band)});
    EXPECT_EQ(groups.size(), 1u);
    return groups[0].padded;
  };
  EXPECT_TRUE(padded(100, 192, {}, 128, 128));
  EXPECT_TRUE(padded(1, 100, {}, 128, 128));
  EXPECT_FALSE(padded(100, 200, {}, 128, 128));
  EXPECT_FALSE(padded(192, 192, {-kUnbounded, 0}, 128, 128));
  EXPECT_TRUE(padded(100, 200, {}, 192, 128));
  EXPECT_TRUE(padded(100, 200, {-10, kUnbounded}, 192, 128));
  EXPECT_FALSE(padded(200, 200, {-kUnbounded, 0}, 192, 128));
}

TEST(CudnnGroups, LaunchesHaveFewEntriesEach) {
  TileProblem p = problem(Direction::kForward, 6000, 6000);
  p.heads_q = p.heads_kv = 128;
  p.group = 1;
  std::vector<int64_t> lengths;
  for (int i = 0; i < 3000; ++i) lengths.push_back(1 + i % 2);
  const auto groups = make_groups(p, pack(lengths, lengths, true));
  for (const Group& g : groups) EXPECT_LE(g.batch * 128, 32768);
  EXPECT_LT(groups.size(), 40u);
}

TEST(CudnnGroups, RandomPackingsShareFewGraphs) {
  std::mt19937_64 random(5);
  std::unordered_set<GraphKey, GraphKeyHash> keys;
  size_t launches = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<int64_t> lengths;
    int64_t rows = 0;
    while (true) {
      const int64_t length = pick(random, 16, 4096);
      if (rows + length > 16384) break;
      lengths.push_back(length);
      rows += length;
    }
    const TileProblem p = problem(Direction::kBackward, 16384, 16384);
    for (const Group& g : make_groups(p, pack(lengths, lengths, true))) {
      if (lengths.size() > kFewTiles) keys.insert(packed_key(p, g, true, 0));
      ++launches;
    }
  }
  EXPECT_LE(keys.size(), 30u);
  EXPECT_LT(launches, 2500u);
}

}  // namespace
}  // namespace longspan::cudnn
