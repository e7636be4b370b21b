// Sequences of one length over ranks: what all_gather asks for is read where it lies.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "longspan/engine.h"
#include "providers/prepared/layout.h"
#include "scene.h"

namespace longspan::prepared::testing {
namespace {

constexpr int64_t kLength = 64;  // tokens of a sequence
constexpr int64_t kExtent = 80;  // rows of it: the pitch
constexpr int64_t kSequences = 3;

const Builds& dense() {
  static const Builds b = builds({{"full", "dense"}, {"causal", "dense"}});
  return b;
}

Problem pitched() {
  const auto all = [](int64_t value) {
    std::string list;
    for (int64_t i = 0; i < kSequences; ++i) list += (i == 0 ? "" : ",") + std::to_string(value);
    return list;
  };
  return parse_problem(
             "dtype=bf16 heads=4/2 dim=16 layout=thd mask=causal device_lengths=true "
             "lengths=" +
             all(kLength) + " padded=" + all(kExtent) + " kv_padded=" + all(kExtent))
      .value();
}

Schedule schedule_of(int ranks, int rank, Direction direction) {
  Options options;
  options.forward.strategy = options.backward.strategy = "all_gather";
  options.partition = "zigzag";
  options.promises = {Promise::kPitchedAllGather};
  Setting setting = make_setting(pitched(), Topology::blocks(ranks, 1), h200(), options).value();
  setting.forward = setting.backward = "all_gather";
  return find_strategy("all_gather").value()->build(setting, direction, rank).value();
}

/// A view of a buffer's rows, at memory that nobody reads.
TensorView rows_of(int64_t rows, int64_t heads) {
  alignas(16) static char memory[16];
  return packed_view(memory, DType::kBF16, rows, heads, 16);
}

void expect_in_place(const Schedule& schedule, const Part& part) {
  TileProblem p = schedule.tiles;
  const auto pieces = make_pieces(p, part.tiles, false);
  p.direction = Direction::kForward;  // what the double's builds are of
  const auto launches = make_launches(p, dense(), pieces);
  ASSERT_TRUE(launches.ok()) << launches.error().text();
  EXPECT_LE(launches->size(), 3u);  // halves of queries against halves of keys
  for (const Launch& launch : *launches) {
    const auto q = in_place(rows_of(p.capacity_q, 4), launch, {.heads = 4, .dim = 16});
    const auto k =
        in_place(rows_of(p.capacity_k, 2), launch, {.keys = true, .heads = 2, .dim = 16});
    ASSERT_TRUE(q && k);
    EXPECT_FALSE(launch.packed);
    if (launch.batch() == 1) continue;
    EXPECT_EQ(q->strides[0], (launch.entries[1].q_row - launch.entries[0].q_row) * 4 * 16);
    EXPECT_GE(q->strides[0], launch.sq() * 4 * 16);  // the pitch, not the rows that are read
  }
}

TEST(PreparedPitched, AllGatherNeedsNoCopyOfRows) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const Schedule schedule = schedule_of(ranks, rank, direction);
        EXPECT_FALSE(schedule.tiles.features.device_lengths);
        size_t parts = 0;
        for (const Step& step : schedule.steps) {
          for (const Part& part : step.parts) {
            SCOPED_TRACE(std::to_string(ranks) + " ranks, rank " + std::to_string(rank));
            expect_in_place(schedule, part);
            ++parts;
          }
        }
        EXPECT_GT(parts, 0u);
      }
    }
  }
}

}  // namespace
}  // namespace longspan::prepared::testing
