// Backward: sequences of all lengths in one call, poisoned gaps, strides, tiles of a ring.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "gpu/hopper/gradients.h"
#include "providers/hopper/backward/layout.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};
constexpr std::pair<int64_t, int64_t> kDims[] = {{192, 128}, {192, 192}, {256, 256}, {512, 512}};

/// Sequences of these lengths with gaps between them, all with one band.
Case make_pack(const std::vector<std::pair<int64_t, int64_t>>& lengths, int64_t dim, int64_t dim_v,
               Band band) {
  int64_t q = 3, k = 8;
  std::vector<PlacedTile> tiles;
  for (const auto& [nq, nk] : lengths) {
    tiles.push_back(make_placed(q, nq, k, nk, band));
    q += nq + 7;
    k += nk + 5;
  }
  Case c = make_case(q, k, dim, dim_v);
  c.tiles = std::move(tiles);
  return c;
}

void check_poisoned(const Case& c, uint64_t seed, const BackwardWay& way = {}) {
  Inputs in = make_inputs(c, seed);
  poison_outside(c, in);
  const ExactBackward exact = exact_backward(c, in);
  check_whole_gradients(c, in, exact, way);
  check_added(c, in, exact, way);
}

TEST(HopperGradientPacks, PoisonedGapsAndEmptySequences) {
  for (const auto& [dim, dim_v] : kDims) {
    for (const Band& band : {kFull, kCausal, Band{-20, 15}, Band{-kUnbounded, -30}}) {
      const Case c = make_pack(
          {{70, 70}, {0, 40}, {130, 130}, {5, 0}, {1, 90}, {300, 310}, {64, 64}}, dim, dim_v, band);
      check_poisoned(c, static_cast<uint64_t>(dim));
      check_poisoned(c, 3, {.score_bytes = 4 * 2 * hopper::kUnitBytes});
    }
  }
}

TEST(HopperGradientPacks, ManyRandomLengths) {
  std::mt19937_64 random(5);
  for (const auto& [dim, dim_v] : kDims) {
    std::vector<std::pair<int64_t, int64_t>> lengths;
    for (int i = 0; i < 40; ++i) {
      const int64_t length = pick(random, 0, i % 5 == 0 ? 400 : 150);
      lengths.emplace_back(length, length);
    }
    check_poisoned(make_pack(lengths, dim, dim_v, kCausal), static_cast<uint64_t>(dim));
  }
}

TEST(HopperGradientPacks, NoKeysOrNoQueriesAtAll) {
  for (const int64_t dim_v : {128, 192}) {
    Case keyless = make_case(200, 0, 192, dim_v);
    keyless.tiles = {make_placed(0, 200, 0, 0, kFull)};
    check_backward(keyless, 1);
    Case queryless = make_case(0, 200, 192, dim_v);
    queryless.tiles = {make_placed(0, 0, 0, 200, kFull)};
    check_backward(queryless, 1);
  }
}

TEST(HopperGradientPacks, StridesAndScalesOfEveryKind) {
  for (const auto& [dim, dim_v] : {std::pair{192, 128}, {192, 192}, {512, 512}}) {
    for (const int64_t gap : {0, 1, 8}) {
      for (const Memory order : {Memory::kTokenMajor, Memory::kHeadMajor}) {
        for (const double scale : {0.11, 0.0, -0.11}) {
          Case c = make_case(400, 400, dim, dim_v);
          c.gap = gap;
          c.memory = order;
          c.batch = 2;
          c.scale = scale;
          c.tiles = {make_placed(0, 150, 0, 150, kCausal), make_placed(150, 150, 150, 150, kCausal),
                     make_placed(310, 80, 305, 95, kFull)};
          check_backward(c, 71);
        }
      }
    }
  }
}

/// Tiles that share rows of queries, of keys, or both.
TEST(HopperGradientPacks, RingOfTiles) {
  for (const auto& [dim, dim_v] : kDims) {
    Case c = make_case(600, 600, dim, dim_v);
    c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(300, 300, 0, 300, kFull),
               make_placed(300, 300, 300, 300, kCausal), make_placed(100, 90, 350, 200, kFull)};
    const Inputs in = make_inputs(c, 5);
    check_added(c, in, exact_backward(c, in));
  }
}

void check_nan_in_a_query(int64_t dim_v) {
  Case c = make_case(300, 700, 192, dim_v);
  c.tiles = {make_placed(0, 300, 0, 700, kCausal)};
  const Inputs clean = make_inputs(c, 8);
  const ExactBackward exact = exact_backward(c, clean);
  Inputs in = make_inputs(c, 8);
  in.q.set(11, 1, 3, NAN);
  Gradients value = zero_gradients(c, DType::kF32);
  compute_by_hopper(c, call_of(c, in, exact, value));
  for (int64_t row = 0; row < 300; ++row) {
    for (int64_t h = 0; h < 4; ++h) {
      EXPECT_EQ(std::isnan(value.dq.get(row, h, 0)), row == 11 && h == 1) << row;
    }
  }
  // Heads 0 and 1 share a key head. Beyond the units that the query lies in nothing is NaN.
  for (int64_t row = 256; row < 700; ++row) {
    EXPECT_FALSE(std::isnan(value.dk.get(row, 0, 0))) << row;
    EXPECT_FALSE(std::isnan(value.dv.get(row, 0, 0))) << row;
  }
}

TEST(HopperGradientPacks, NanInAQueryStaysInWhatItSees) {
  for (const int64_t dim_v : {128, 192}) check_nan_in_a_query(dim_v);
}

}  // namespace
}  // namespace longspan::testing
