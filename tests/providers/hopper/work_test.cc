// Blocks of queries cover what is visible, in waves that share no rows.
#include "providers/hopper/work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace longspan::hopper {
namespace {

constexpr int64_t kRows = 128, kKeys = 80;
constexpr Band kCausal{-kUnbounded, 0};

PlacedTile placed(int64_t q_row, int64_t nq, int64_t k_row, int64_t nk, Band band) {
  return {.tile = {.q = {0, nq, 1}, .k = {0, nk, 1}, .band = band}, .q_row = q_row, .k_row = k_row};
}

std::vector<int64_t> firsts(const Work& work) {
  std::vector<int64_t> result;
  for (const Block& b : work.blocks) result.push_back(b.first);
  return result;
}

TEST(HopperWork, EvenBlocksKeepTheirOrder) {
  const PlacedTile tile = placed(5, 300, 7, 500, {});
  const Work work = make_work({&tile, 1}, false, kRows, kKeys);
  EXPECT_EQ(firsts(work), (std::vector<int64_t>{0, 128, 256}));
  const Block expected{.q_row = 5,
                       .k_row = 7,
                       .first = 128,
                       .queries = 300,
                       .keys = 500,
                       .lo = -(1 << 29),
                       .hi = 1 << 29};
  EXPECT_EQ(work.blocks[1], expected);
  EXPECT_EQ(work.waves, (std::vector<Wave>{{.count = 3, .keys = 500, .even = true}}));
}

TEST(HopperWork, TheLongestBlocksComeFirst) {
  const PlacedTile tile = placed(0, 512, 0, 512, kCausal);
  const Work work = make_work({&tile, 1}, true, kRows, kKeys);
  EXPECT_EQ(firsts(work), (std::vector<int64_t>{384, 256, 128, 0}));
  EXPECT_FALSE(work.waves[0].even);
  EXPECT_EQ(key_blocks(work.blocks[0], kRows, kKeys), 7);  // keys 0 to 511
  EXPECT_EQ(key_blocks(work.blocks[3], kRows, kKeys), 2);  // keys 0 to 127
}

TEST(HopperWork, BlocksThatSeeNothingAreBlanksOfWholeResults) {
  const std::vector<PlacedTile> tiles = {placed(0, 300, 0, 100, {-kUnbounded, -200}),
                                         placed(300, 50, 100, 0, {}), placed(350, 0, 100, 20, {})};
  EXPECT_EQ(firsts(make_work(tiles, false, kRows, kKeys)), (std::vector<int64_t>{256, 128}));
  const Work whole = make_work(tiles, true, kRows, kKeys);
  EXPECT_EQ(whole.blocks.size(), 4u);
  EXPECT_EQ(whole.waves.size(), 1u);
  EXPECT_EQ(key_blocks(whole.blocks.back(), kRows, kKeys), 1);
}

TEST(HopperWork, TilesThatShareQueriesTakeTurns) {
  const std::vector<PlacedTile> tiles = {placed(0, 200, 0, 100, {}), placed(100, 200, 100, 100, {}),
                                         placed(400, 100, 0, 100, {})};
  const Work work = make_work(tiles, false, kRows, kKeys);
  ASSERT_EQ(work.waves.size(), 2u);
  EXPECT_EQ(work.waves[0].count, 3u);
  EXPECT_EQ(work.waves[1].first, 3u);
  EXPECT_EQ(work.blocks[3].q_row, 100);
}

TEST(HopperWork, BlocksNameTheTokensOfTheirTile) {
  std::vector<PlacedTile> tiles = {placed(0, 10, 0, 0, {}), placed(10, 200, 0, 100, {})};
  tiles[1].tile.q = {50, 650, 3};
  tiles[1].tile.k = {(int64_t{1} << 32) + 8, (int64_t{1} << 32) + 208, 2};
  tiles[1].tile.sequence = 4;
  tiles[1].shift = 20;
  const Tokens expected{.distance = 50 + 20 - 8 - (int64_t{1} << 32),
                        .q_begin = 50,
                        .k_begin = 8,
                        .q_stride = 3,
                        .k_stride = 2,
                        .sequence = 4};
  for (const bool whole : {false, true}) {
    const Work work = make_work(tiles, whole, kRows, kKeys);
    ASSERT_EQ(work.tokens.size(), whole ? 2u : 1u);
    for (const Block& b : work.blocks) {
      const Tokens& tokens = work.tokens[static_cast<size_t>(b.tile)];
      EXPECT_EQ(tokens, b.q_row == 0 ? Tokens{} : expected);
    }
  }
}

TEST(HopperWork, StepsAreTheKeyBlocksOfAllBlocks) {
  const std::vector<PlacedTile> tiles = {placed(0, 512, 0, 512, kCausal),
                                         placed(512, 130, 512, 161, {})};
  EXPECT_EQ(key_steps(tiles, kRows, kKeys), 2 + 4 + 5 + 7 + 2 * 3);
  EXPECT_EQ(key_steps(tiles, 512, kKeys), 7 + 3);
}

TEST(HopperWork, NothingToDo) {
  EXPECT_TRUE(make_work({}, false, kRows, kKeys).waves.empty());
  const PlacedTile tile = placed(0, 10, 0, 10, {5, 2});
  EXPECT_TRUE(make_work({&tile, 1}, false, kRows, kKeys).waves.empty());
}

/// The band that a block carries hides and shows what the tile's does.
TEST(HopperWork, EdgesOfBandsAreKept) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const int64_t nq = draw(1, 400), nk = draw(1, 400);
    Band band{draw(-nq, nk), draw(-nq, nk)};
    if (i % 3 == 0) band.lo = -kUnbounded;
    if (i % 4 == 0) band.hi = kUnbounded;
    const PlacedTile tile = placed(0, nq, 0, nk, band);
    int64_t pairs = 0;
    for (const Block& b : make_work({&tile, 1}, false, kRows, kKeys).blocks) {
      for (int64_t q = b.first; q < std::min<int64_t>(b.first + kRows, nq); ++q) {
        for (int64_t k = 0; k < nk; ++k) pairs += b.lo <= k - q && k - q <= b.hi;
      }
    }
    EXPECT_EQ(pairs, area(band, nq, nk));
  }
}

}  // namespace
}  // namespace longspan::hopper
