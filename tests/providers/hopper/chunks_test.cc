// Chunks of a backward call, simulated: every visible pair is summed once into each gradient, from
// blocks of scratch that were written, and every row is begun and ended as it should be.
#include "providers/hopper/backward/chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "providers/hopper/backward/layout.h"
#include "providers/hopper/backward/lists.h"
#include "providers/hopper/backward/scratch.h"
#include "providers/rules.h"

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

/// Runs lists as the kernels do, on sets of pairs instead of numbers.
class Simulation {
 public:
  Simulation(const TileProblem& problem, int64_t units) : problem_(problem), units_(units) {}

  void run(const std::vector<PlacedTile>& tiles) {
    const Cut cut = cut_into_chunks(problem_, tiles, units_);
    for (const Chunk& chunk : cut.chunks) {
      const Lists lists = make_lists(problem_, cut.parts[chunk.parts], chunk, 256);
      run_scores(lists, chunk);
      written_.clear();
      int64_t last = std::numeric_limits<int64_t>::max();
      for (const GradientItem& item : lists.gradients) {
        EXPECT_LE(steps_of(item), last);
        last = steps_of(item);
        if (item.part == 0) run_gradient(lists, chunk, item);
      }
    }
  }

  using Row = std::tuple<Gradient, int64_t, int64_t>;  // head, row of the view
  struct State {
    std::map<std::tuple<int64_t, int64_t, int64_t>, int> pairs;  // query head, rows of q and k
    bool begun = false, ended = false;
  };
  std::map<Row, State> rows;

 private:
  struct Block {
    size_t region = 0;
    int64_t head = 0, query = 0, key = 0;  // of the region's, its first ones
  };

  void run_scores(const Lists& lists, const Chunk& chunk) {
    blocks_.clear();
    const int64_t heads = chunk.heads.last - chunk.heads.first;
    EXPECT_LE(heads * lists.head_blocks, units_ * kUnitBlocks);
    EXPECT_EQ(static_cast<int64_t>(lists.scores.size()) * kUnitBlocks, lists.head_blocks);
    for (int64_t head = 0; head < heads; ++head) {
      for (const ScoreItem& item : lists.scores) {
        const Region& region = lists.regions[static_cast<size_t>(item.region)];
        const Line& line = lists.lines[static_cast<size_t>(region.line + item.line)];
        for (int64_t r = 0; r < kUnitQueries / kBlockSide; ++r) {
          for (int64_t c = 0; c < kUnitColumns; ++c) {
            const int64_t at = head * lists.head_blocks + line.first +
                               item.column * kUnitColumns + r * line.pitch + c;
            const Block block{static_cast<size_t>(item.region), head,
                              item.line * kUnitQueries + r * kBlockSide,
                              item.column * kUnitKeys + c * kBlockSide};
            EXPECT_TRUE(at >= 0 && at < heads * lists.head_blocks);
            EXPECT_TRUE(blocks_.emplace(at, block).second) << "block " << at << " twice";
          }
        }
      }
    }
  }

  void expect_block(int64_t at, const Block& expected) const {
    const auto found = blocks_.find(at);
    ASSERT_NE(found, blocks_.end()) << "block " << at << " was not written";
    EXPECT_EQ(found->second.region, expected.region);
    EXPECT_EQ(found->second.head, expected.head);
    EXPECT_EQ(found->second.query, expected.query);
    EXPECT_EQ(found->second.key, expected.key);
  }

  void run_gradient(const Lists& lists, const Chunk& chunk, const GradientItem& item) {
    const bool queries = item.gradient == Gradient::kDq;
    const auto index = static_cast<size_t>(item.region);
    const Region& region = lists.regions[index];
    const int64_t first = int64_t{item.tile} * kGradientRows;
    const int64_t count =
        std::min<int64_t>(kGradientRows, (queries ? region.queries : region.keys) - first);
    const int64_t head = item.head + (queries ? chunk.heads.first : chunk.key_heads.first);
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t row = (queries ? region.q_row : region.k_row) + i;
      EXPECT_TRUE(written_.insert({item.gradient, head, row}).second) << "two write row " << row;
      State& state = rows[{item.gradient, head, row}];
      EXPECT_FALSE(state.ended);
      EXPECT_EQ(item.adds, state.begun || !problem_.features.whole);
      EXPECT_TRUE(problem_.features.whole || !item.ends);
      state.begun = true;
      state.ended = item.ends;
    }
    for (int64_t h = item.first_head; h < item.last_head; ++h) {
      for (int64_t b = item.first; b < item.last; ++b) {
        add_block(lists, chunk, item, index, h, b);
      }
    }
  }

  void add_block(const Lists& lists, const Chunk& chunk, const GradientItem& item, size_t index,
                 int64_t head, int64_t block) {
    const bool queries = item.gradient == Gradient::kDq;
    const Region& region = lists.regions[index];
    const int64_t base = head * lists.head_blocks;
    const int64_t sides = kGradientRows / kBlockSide;
    for (int64_t side = 0; side < sides; ++side) {
      const int64_t row_block = queries ? item.tile * sides + side : block;
      const int64_t column_block = queries ? block : item.tile * sides + side;
      const Line& line = lists.lines[static_cast<size_t>(region.line + row_block / 2)];
      expect_block(base + line.first + row_block % 2 * line.pitch + column_block,
                   {index, head, row_block * kBlockSide, column_block * kBlockSide});
      for (int64_t i = row_block * kBlockSide;
           i < std::min<int64_t>((row_block + 1) * kBlockSide, region.queries); ++i) {
        for (int64_t j = column_block * kBlockSide;
             j < std::min<int64_t>((column_block + 1) * kBlockSide, region.keys); ++j) {
          if (j - i < region.lo || j - i > region.hi) continue;
          const int64_t query_head = chunk.heads.first + head;
          const int64_t q = region.q_row + i, k = region.k_row + j;
          const Row row = queries ? Row{item.gradient, query_head, q}
                                  : Row{item.gradient, key_head(problem_, query_head), k};
          ++rows[row].pairs[{query_head, q, k}];
        }
      }
    }
  }

  TileProblem problem_;
  int64_t units_;
  std::map<int64_t, Block> blocks_;
  std::set<Row> written_;
};

void check(const TileProblem& problem, const std::vector<PlacedTile>& tiles, int64_t units) {
  Simulation simulation(problem, units);
  simulation.run(tiles);
  std::map<Simulation::Row, std::map<std::tuple<int64_t, int64_t, int64_t>, int>> expected;
  for (const PlacedTile& t : tiles) {
    for (int64_t i = 0; i < t.tile.q.size(); ++i) {
      for (int64_t head = 0; head < problem.heads_q; ++head) {
        expected[{Gradient::kDq, head, t.q_row + i}];
        const Range seen = visible_keys(t.tile.band, i, t.tile.k.size());
        for (int64_t j = seen.first; j < seen.last; ++j) {
          const std::tuple pair{head, t.q_row + i, t.k_row + j};
          const int64_t key = key_head(problem, head);
          ++expected[{Gradient::kDq, head, t.q_row + i}][pair];
          ++expected[{Gradient::kDk, key, t.k_row + j}][pair];
          ++expected[{Gradient::kDv, key, t.k_row + j}][pair];
        }
      }
    }
    for (int64_t j = 0; j < t.tile.k.size(); ++j) {
      for (int64_t head = 0; head < problem.heads_kv; ++head) {
        expected[{Gradient::kDk, head, t.k_row + j}];
        expected[{Gradient::kDv, head, t.k_row + j}];
      }
    }
  }
  for (const auto& [row, pairs] : expected) {
    const auto found = simulation.rows.find(row);
    if (found == simulation.rows.end()) {
      EXPECT_TRUE(pairs.empty() && !problem.features.whole);
      continue;
    }
    EXPECT_EQ(found->second.pairs, pairs);
    EXPECT_EQ(found->second.ended, problem.features.whole);
  }
}

TEST(HopperChunks, OneChunkWhereAllFits) {
  const TileProblem p = problem_of(300, 500, 4, 2, true);
  const std::vector<PlacedTile> tiles = {placed(0, 300, 0, 500, kFull)};
  const Cut cut = cut_into_chunks(p, tiles, 3 * 2 * 4);
  ASSERT_EQ(cut.chunks.size(), 1u);
  EXPECT_EQ(cut.chunks[0], (Chunk{.key_heads = {0, 2}, .heads = {0, 4}}));
  EXPECT_EQ(units_of(cut.parts[0][0]), 6);
}

TEST(HopperChunks, KeyHeadsThatFitTogether) {
  const TileProblem p = problem_of(300, 500, 12, 2, true);
  const std::vector<PlacedTile> tiles = {placed(0, 300, 0, 500, kFull)};
  const Cut cut = cut_into_chunks(p, tiles, 6 * 2 * 4);  // four of six key heads
  ASSERT_EQ(cut.chunks.size(), 2u);
  EXPECT_EQ(cut.chunks[1], (Chunk{.key_heads = {3, 6}, .heads = {6, 12}}));
  EXPECT_EQ(cut.parts.size(), 1u);
}

TEST(HopperChunks, CausalUnitsAreHalfOfThem) {
  const Part part{placed(0, 8192, 0, 8192, kCausal), {0, 8192}, {0, 8192}};
  EXPECT_EQ(units_of(part), 2 * 32 * 33 / 2);
  EXPECT_EQ(units_of({placed(0, 100, 0, 50, {60, 70}), {0, 100}, {0, 50}}), 0);
}

TEST(HopperChunks, GridsHaveTwiceAsManyQueriesAsKeys) {
  const Grid grid = grid_of(4096, 2);
  EXPECT_EQ(grid.columns * kUnitKeys, 8192);
  EXPECT_EQ(grid.lines * kUnitQueries, 16384);
  EXPECT_EQ(grid.heads, 2);
  EXPECT_EQ(grid_of(4096, 64).heads, 16);
  EXPECT_EQ(grid_of(1, 8).heads, 1);
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
    check(p, {placed(10, nq, 5, nk, band)}, draw(1, 12));
  }
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
  for (const int64_t units : {2, 9, 1000}) check(problem_of(q, k, 2, 2, true), tiles, units);
}

TEST(HopperChunks, TilesThatShareRowsAreChunksOfTheirOwn) {
  const std::vector<PlacedTile> tiles = {placed(0, 200, 0, 200, kCausal),
                                         placed(200, 200, 0, 200, kFull),
                                         placed(200, 200, 200, 200, kCausal)};
  const TileProblem p = problem_of(400, 400, 2, 1, false);
  EXPECT_EQ(cut_into_chunks(p, tiles, 1000).chunks.size(), 3u);
  check(p, tiles, 1000);
  check(p, tiles, 3);
}

TEST(HopperChunks, NothingToDo) {
  const std::vector<PlacedTile> tiles = {placed(0, 10, 0, 10, {5, 2})};
  EXPECT_TRUE(cut_into_chunks(problem_of(10, 10, 1, 1, false), tiles, 4).chunks.empty());
  EXPECT_TRUE(cut_into_chunks(problem_of(0, 0, 1, 1, true), {}, 4).chunks.empty());
  check(problem_of(10, 10, 2, 1, true), tiles, 4);
}

/// A long tile: constant scratch, few lists, none of them per head.
TEST(HopperChunks, LongTiles) {
  const TileProblem p = problem_of(65536, 65536, 16, 2, true);
  const BackwardScratch scratch = backward_scratch(p);
  EXPECT_EQ(scratch.units, 4096);
  const std::vector<PlacedTile> full = {placed(0, 65536, 0, 65536, kFull)};
  const Cut cut = cut_into_chunks(p, full, scratch.units);
  EXPECT_EQ(cut.parts.size(), 64u);
  EXPECT_EQ(cut.chunks.size(), 64u * 8);
  const std::vector<PlacedTile> window = {placed(0, 65536, 0, 65536, {-1024, 0})};
  EXPECT_LE(cut_into_chunks(p, window, scratch.units).parts.size(), 3u);
}

TEST(HopperChunks, ScratchIsConstant) {
  const TileProblem p = problem_of(1 << 20, 1 << 20, 16, 2, false);
  const BackwardScratch merged = backward_scratch(p);
  EXPECT_EQ(merged.ds - merged.p, static_cast<size_t>(kScoreBytes / 2));
  EXPECT_EQ(merged.p, merged.sums_q);  // sums are the caller's
  EXPECT_EQ(backward_scratch(problem_of(128, 256, 2, 1, true)).units, 2);
  EXPECT_EQ(backward_scratch(problem_of(8192, 8192, 2, 1, true), 1).units, 1);
}

}  // namespace
}  // namespace longspan::hopper
