// How backward calls are cut into chunks.
#include "providers/hopper/backward/chunks.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "providers/hopper/backward/layout.h"
#include "providers/hopper/backward/lists.h"
#include "providers/hopper/backward/scratch.h"
#include "providers/hopper/chunk_simulation.h"

namespace longspan::hopper {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

PlacedTile placed(int64_t q_row, int64_t nq, int64_t k_row, int64_t nk, Band band) {
  return {.tile = {.q = {0, nq, 1}, .k = {0, nk, 1}, .band = band}, .q_row = q_row, .k_row = k_row};
}

TileProblem problem_of(int64_t rows_q, int64_t rows_k, int64_t heads, int64_t group, bool whole) {
  TileProblem p{.direction = Direction::kBackward,
                .dtype = DType::kBF16,
                .heads_q = heads,
                .heads_kv = heads / group,
                .group = group,
                .dim_qk = 256,
                .dim_v = 192,
                .capacity_q = rows_q,
                .capacity_k = rows_k};
  p.features.whole = whole;
  return p;
}

TEST(HopperChunks, OneChunkWhereAllFits) {
  const TileProblem p = problem_of(300, 500, 4, 2, true);
  const std::vector<PlacedTile> tiles = {placed(0, 300, 0, 500, kFull)};
  const Chunks cut = cut_into_chunks(p, tiles, 3 * 2 * 4);
  ASSERT_EQ(cut.chunks.size(), 1u);
  EXPECT_EQ(cut.chunks[0], (Chunk{.key_heads = {0, 2}, .heads = {0, 4}}));
  EXPECT_EQ(units_of(cut.parts[0][0]), 6);
}

TEST(HopperChunks, KeyHeadsThatFitTogether) {
  const TileProblem p = problem_of(300, 500, 12, 2, true);
  const std::vector<PlacedTile> tiles = {placed(0, 300, 0, 500, kFull)};
  const Chunks cut = cut_into_chunks(p, tiles, 6 * 2 * 4);  // four of six key heads
  ASSERT_EQ(cut.chunks.size(), 2u);
  EXPECT_EQ(cut.chunks[1], (Chunk{.key_heads = {3, 6}, .heads = {6, 12}}));
  EXPECT_EQ(cut.parts.size(), 1u);
}

TEST(HopperChunks, CausalUnitsAreHalfOfThem) {
  const Part part{placed(0, 8192, 0, 8192, kCausal), {0, 8192}, {0, 8192}};
  EXPECT_EQ(units_of(part), 2 * 32 * 33 / 2);
  EXPECT_EQ(units_of({placed(0, 100, 0, 50, {60, 70}), {0, 100}, {0, 50}}), 0);
}

TEST(HopperChunks, FourHeadsOf8192CausalTokens) {
  const TileProblem p = problem_of(8192, 8192, 16, 2, true);
  const std::vector<PlacedTile> tiles = {placed(0, 8192, 0, 8192, kCausal)};
  const Chunks cut = cut_into_chunks(p, tiles, backward_scratch(p).units);
  ASSERT_EQ(cut.chunks.size(), 4u);
  EXPECT_EQ(cut.chunks[0], (Chunk{.key_heads = {0, 2}, .heads = {0, 4}}));
}

TEST(HopperChunks, GridsAreTwoChunksLarge) {
  const Grid grid = grid_of(4096, 2);
  EXPECT_EQ(grid.columns * kUnitKeys, 16384);
  EXPECT_EQ(grid.lines * kUnitQueries, 16384);
  EXPECT_EQ(grid.heads, 2);
  EXPECT_EQ(grid_of(4096, 64).heads, 16);
  EXPECT_EQ(grid_of(1, 8).heads, 1);
}

/// The corners that a causal mask cuts from a grid are chunks as large as the others.
TEST(HopperChunks, LongCausalTilesHaveChunksAlike) {
  const TileProblem p = problem_of(65536, 65536, 2, 2, false);
  const std::vector<PlacedTile> tiles = {placed(0, 65536, 0, 65536, kCausal)};
  const Chunks cut = cut_into_chunks(p, tiles, backward_scratch(p).units);
  EXPECT_EQ(cut.parts.size(), 16u);
  for (const Parts& parts : cut.parts) {
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_GE(units_of(parts[0]), 4000);
  }
}

TEST(HopperChunks, EveryPairOnce) {
  std::mt19937_64 random(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < 24; ++i) {
    const int64_t group = draw(1, 3), nq = draw(0, 400), nk = draw(0, 600);
    Band band{draw(-nq, nk), draw(-nq, nk)};
    if (i % 3 == 0) band.lo = -kUnbounded;
    if (i % 4 == 0) band.hi = kUnbounded;
    TileProblem p = problem_of(nq + 10, nk + 10, 1, 1, i % 2 == 0);
    p.heads_q = draw(1, 3);
    p.group = group;
    p.group_offset = draw(0, group - 1);
    p.heads_kv = (p.heads_q - 1 + p.group_offset) / group + draw(1, 2);
    check_chunks(p, {placed(10, nq, 5, nk, band)}, draw(1, 12));
  }
}

/// dV summed where scores are made, and its sums in parts.
TEST(HopperChunks, EveryPairOnceWithoutP) {
  const auto narrow = [](TileProblem p) {
    p.dim_qk = 192, p.dim_v = 128;
    return p;
  };
  for (const Band& band : {kFull, kCausal, Band{-150, 40}, Band{-kUnbounded, -100}}) {
    for (const int64_t units : {1, 4, 1000}) {
      const int64_t group = units == 4 ? 2 : 1;
      const TileProblem p = narrow(problem_of(300, 310, 2, group, units == 1));
      check_chunks(p, {placed(10, 280, 5, 300, band)}, units);
    }
  }
  check_chunks(narrow(problem_of(2200, 70, 1, 1, true)), {placed(0, 2200, 0, 70, kFull)}, 17);
  check_chunks(narrow(problem_of(2200, 70, 1, 1, false)), {placed(0, 2200, 0, 70, {-2100, -70})},
               17);
}

TEST(HopperChunks, Packs) {
  std::mt19937_64 random(12);
  std::vector<PlacedTile> tiles;
  int64_t q = 0, k = 0;
  for (int i = 0; i < 12; ++i) {
    const auto length = std::uniform_int_distribution<int64_t>(0, 300)(random);
    tiles.push_back(placed(q, length, k, length, kCausal));
    q += length, k += length;
  }
  for (const int64_t units : {2, 9, 1000}) check_chunks(problem_of(q, k, 2, 2, true), tiles, units);
}

TEST(HopperChunks, TilesThatShareRowsAreChunksOfTheirOwn) {
  const std::vector<PlacedTile> tiles = {placed(0, 200, 0, 200, kCausal),
                                         placed(200, 200, 0, 200, kFull),
                                         placed(200, 200, 200, 200, kCausal)};
  const TileProblem p = problem_of(400, 400, 2, 1, false);
  EXPECT_EQ(cut_into_chunks(p, tiles, 1000).chunks.size(), 3u);
  check_chunks(p, tiles, 1000);
  check_chunks(p, tiles, 3);
}

/// Of a tile that is cut both ways, and of another one behind it.
TEST(HopperChunks, RegionsKnowTheirTokens) {
  constexpr int64_t kFar = (int64_t{1} << 32) + 8;
  std::vector<PlacedTile> tiles = {placed(0, 1000, 0, 1500, kFull),
                                   placed(1000, 40, 1500, 70, kCausal)};
  for (PlacedTile& t : tiles) {
    t.tile.q = {50, 50 + 3 * t.tile.q.size(), 3};
    t.tile.k = {kFar, kFar + 2 * t.tile.k.size(), 2};
    t.tile.sequence = 4;
    t.shift = 20;
  }
  const TileProblem p = problem_of(1040, 1570, 2, 1, true);
  const Chunks cut = cut_into_chunks(p, tiles, 4);
  int regions = 0;
  for (const Chunk& chunk : cut.chunks) {
    const Parts& parts = cut.parts[chunk.parts];
    const Lists lists = make_lists(p, parts, chunk, {256, 256});
    ASSERT_EQ(lists.regions.size(), parts.size());
    ASSERT_EQ(lists.tokens.size(), parts.size());
    for (size_t i = 0; i < parts.size(); ++i, ++regions) {
      const Tile& tile = parts[i].tile.tile;
      const int64_t q = tile.q.at(parts[i].q.first), k = tile.k.at(parts[i].k.first);
      const Tokens expected{.distance = q + 20 - k,
                            .q_begin = static_cast<uint32_t>(q),
                            .k_begin = static_cast<uint32_t>(k),
                            .q_stride = 3,
                            .k_stride = 2,
                            .sequence = 4};
      EXPECT_EQ(lists.tokens[i], expected) << "part " << i << " of chunk parts " << chunk.parts;
    }
  }
  EXPECT_GT(regions, 8);
}

TEST(HopperChunks, NothingToDo) {
  const std::vector<PlacedTile> tiles = {placed(0, 10, 0, 10, {5, 2})};
  EXPECT_TRUE(cut_into_chunks(problem_of(10, 10, 1, 1, false), tiles, 4).chunks.empty());
  EXPECT_TRUE(cut_into_chunks(problem_of(0, 0, 1, 1, true), {}, 4).chunks.empty());
  check_chunks(problem_of(10, 10, 2, 1, true), tiles, 4);
}

/// A long tile: constant scratch, few lists, none of them per head.
TEST(HopperChunks, LongTiles) {
  const TileProblem p = problem_of(65536, 65536, 16, 2, true);
  const BackwardScratch scratch = backward_scratch(p);
  EXPECT_EQ(scratch.units, 4224);
  const std::vector<PlacedTile> full = {placed(0, 65536, 0, 65536, kFull)};
  const Chunks cut = cut_into_chunks(p, full, scratch.units);
  EXPECT_EQ(cut.parts.size(), 32u);
  EXPECT_EQ(cut.chunks.size(), 32u * 16);
  const std::vector<PlacedTile> window = {placed(0, 65536, 0, 65536, {-1024, 0})};
  EXPECT_LE(cut_into_chunks(p, window, scratch.units).parts.size(), 3u);
}

/// What a key head's chunk reads is bounded, however long and narrow the band.
TEST(HopperChunks, RowsThatAreRead) {
  constexpr int64_t kRows = 1 << 20;
  const TileProblem p = problem_of(kRows, kRows, 16, 2, true);
  std::vector<PlacedTile> pack;
  for (int64_t row = 0; row < kRows; row += 128)
    pack.push_back(placed(row, 128, row, 128, kCausal));
  const std::vector<PlacedTile> window = {placed(0, kRows, 0, kRows, {-10, 0})};
  for (const std::vector<PlacedTile>& tiles : {pack, window}) {
    for (const Parts& parts : cut_into_chunks(p, tiles, 4096).parts) {
      ReadRows reads;
      for (const Part& part : parts) reads = joined(reads, read_rows(part));
      EXPECT_GT(reads.k.last, reads.k.first);
      EXPECT_LE((reads.q.last - reads.q.first) * 2 + reads.k.last - reads.k.first, kMostRowHeads);
    }
  }
}

TEST(HopperChunks, ScratchIsConstant) {
  const TileProblem p = problem_of(1 << 20, 1 << 20, 16, 2, false);
  const BackwardScratch merged = backward_scratch(p);
  EXPECT_EQ(merged.ds - merged.p, static_cast<size_t>(kScoreBytes / 2));
  EXPECT_EQ(merged.p, merged.sums_q);  // sums are the caller's
  EXPECT_EQ(merged.sums_q - merged.rows, static_cast<size_t>(kMostRowHeads * (256 + 192) * 2));
  TileProblem wide = problem_of(65536, 65536, 16, 2, true);
  wide.dim_qk = wide.dim_v = 512;
  EXPECT_LE(backward_scratch(wide).end, size_t{1} << 30);
  EXPECT_EQ(backward_scratch(problem_of(128, 256, 2, 1, true)).units, 2);
  TileProblem one_unit = problem_of(8192, 8192, 2, 1, true);
  one_unit.score_bytes = 1;
  EXPECT_EQ(backward_scratch(one_unit).units, 1);
}

}  // namespace
}  // namespace longspan::hopper
