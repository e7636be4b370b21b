#include "providers/hopper/chunk_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "providers/hopper/backward/chunks.h"
#include "providers/hopper/backward/layout.h"
#include "providers/hopper/backward/lists.h"
#include "providers/rules.h"

namespace longspan::hopper {
namespace {

/// Runs lists as the kernels do, on sets of pairs instead of numbers.
class Simulation {
 public:
  Simulation(const TileProblem& problem, int64_t units) : problem_(problem), units_(units) {}

  void run(const std::vector<PlacedTile>& tiles) {
    const Chunks cut = cut_into_chunks(problem_, tiles, units_);
    for (const Chunk& chunk : cut.chunks) {
      const Lists lists = make_lists(problem_, cut.parts[chunk.parts], chunk, {256, 256});
      written_.clear();
      if (sums_values(problem_)) {
        run_values(lists, chunk);
      } else {
        run_scores(lists, chunk);
      }
      for (const GradientItem& item : lists.gradients) {
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
            const int64_t at = head * lists.head_blocks + line.first + item.column * kUnitColumns +
                               r * line.pitch + c;
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

  /// dS of each line of queries that sums of dV go over, and the sums.
  void run_values(const Lists& lists, const Chunk& chunk) {
    blocks_.clear();
    EXPECT_TRUE(lists.scores.empty());
    const int64_t heads = chunk.heads.last - chunk.heads.first;
    EXPECT_LE(heads * lists.head_blocks, units_ * kUnitBlocks);
    std::map<int32_t, int32_t> turns;
    for (const GradientItem& item : lists.values) {
      EXPECT_EQ(item.gradient, Gradient::kDv);
      if (item.sum_parts > 1) {
        EXPECT_TRUE(chunk.cut);
        EXPECT_LT(item.turn * 2 + 1, backward_turns(problem_));
        EXPECT_EQ(turns[item.turn]++, item.sum_part);
      }
      const Region& region = lists.regions[static_cast<size_t>(item.region)];
      constexpr int64_t kSides = kUnitQueries / kBlockSide;
      for (int64_t head = item.first_head; head < item.last_head; ++head) {
        for (int64_t line = item.first / kSides; line * kSides < item.last; ++line) {
          write_blocks(lists, item, head, line,
                       lists.lines[static_cast<size_t>(region.line + line)]);
        }
      }
    }
    for (const GradientItem& item : lists.values) run_gradient(lists, chunk, item);
  }

  void write_blocks(const Lists& lists, const GradientItem& item, int64_t head, int64_t line_number,
                    const Line& line) {
    for (int64_t r = 0; r < kUnitQueries / kBlockSide; ++r) {
      for (int64_t c = 0; c < kGradientRows / kBlockSide; ++c) {
        const int64_t column = item.tile * (kGradientRows / kBlockSide) + c;
        const int64_t at = head * lists.head_blocks + line.first + column + r * line.pitch;
        const Block block{static_cast<size_t>(item.region), head,
                          line_number * kUnitQueries + r * kBlockSide, column * kBlockSide};
        EXPECT_TRUE(at >= 0 && at < head * lists.head_blocks + lists.head_blocks);
        EXPECT_TRUE(blocks_.emplace(at, block).second) << "block " << at << " twice";
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
      const bool first = written_.insert({item.gradient, head, row}).second;
      EXPECT_EQ(first, item.sum_part == 0) << "two write row " << row;
      State& state = rows[{item.gradient, head, row}];
      EXPECT_FALSE(state.ended);
      EXPECT_EQ(item.adds, state.begun || !problem_.features.whole);
      EXPECT_TRUE(problem_.features.whole || !item.ends);
      if (queries && problem_.features.whole) expect_sums(chunk, head, row, item);
      state.begun = true;
      state.ended = item.ends;
    }
    for (int64_t h = item.first_head; h < item.last_head; ++h) {
      for (int64_t begin = item.first; begin < item.last; begin += item.window) {
        add_window(lists, chunk, item, h,
                   {begin, std::min<int64_t>(begin + item.window, item.last)});
      }
    }
  }

  /// FP32 rows of dQ lie in the workspace, where the chunk before has left them.
  void expect_sums(const Chunk& chunk, int64_t head, int64_t row, const GradientItem& item) {
    const int64_t heads = chunk.heads.last - chunk.heads.first;
    const int64_t place = (row - chunk.sums_q_row) * heads + head - chunk.heads.first;
    const int64_t places = grid_of(units_, group_heads(problem_)).lines * kUnitQueries;
    if (!item.adds && item.ends) return;
    EXPECT_TRUE(place >= 0 && place < places) << "row " << row;
    std::pair<int64_t, int64_t>& held = sums_q_[place];
    if (item.adds) {
      EXPECT_EQ(held, std::pair(head, row));
    }
    held = {head, row};
  }

  void add_window(const Lists& lists, const Chunk& chunk, const GradientItem& item, int64_t head,
                  Range blocks) {
    int64_t b = std::min(blocks.first + item.start, blocks.last - 1);
    for (int64_t i = blocks.first; i < blocks.last; ++i) {
      add_block(lists, chunk, item, static_cast<size_t>(item.region), head, b);
      b += item.up ? 1 : -1;
      if (b >= blocks.last) b = blocks.first;
      if (b < blocks.first) b = blocks.last - 1;
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
  std::map<int64_t, std::pair<int64_t, int64_t>> sums_q_;  // head and row, by place
};

}  // namespace

void check_chunks(const TileProblem& problem, const std::vector<PlacedTile>& tiles, int64_t units) {
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

}  // namespace longspan::hopper
