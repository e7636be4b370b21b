// Sequences of all lengths in one call, poisoned gaps, strides, tiles of a ring.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "gpu/hopper/against_reference.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

/// Sequences of these lengths with gaps between them, all with one band.
Case make_pack(const std::vector<std::pair<int64_t, int64_t>>& lengths, Dims dims, Band band) {
  int64_t q = 3, k = 8;
  std::vector<PlacedTile> tiles;
  for (const auto& [nq, nk] : lengths) {
    tiles.push_back(make_placed(q, nq, k, nk, band));
    q += nq + 7;
    k += nk + 5;
  }
  Case c = make_case(q, k, dims.qk, dims.v);
  c.tiles = std::move(tiles);
  return c;
}

TEST(HopperPacks, PoisonedGapsAndEmptySequences) {
  for (const auto& [dim, dim_v] : kKernelDims) {
    for (const Band& band : {kFull, kCausal, Band{-20, 15}, Band{-kUnbounded, -30}}) {
      const Case c =
          make_pack({{70, 70}, {0, 40}, {130, 130}, {5, 0}, {1, 90}, {300, 310}, {64, 64}},
                    {dim, dim_v}, band);
      Inputs in = make_inputs(c, static_cast<uint64_t>(dim));
      poison_outside(c, in);
      check_whole(c, in);
      // What is carried in rows of no tile stays, so that it must not be looked at.
      check_merged(c, in);
    }
  }
}

TEST(HopperPacks, ManyRandomLengths) {
  std::mt19937_64 random(5);
  for (const auto& [dim, dim_v] : kKernelDims) {
    std::vector<std::pair<int64_t, int64_t>> lengths;
    for (int i = 0; i < 40; ++i) {
      const int64_t length = pick(random, 0, i % 5 == 0 ? 400 : 150);
      lengths.emplace_back(length, length);
    }
    const Case c = make_pack(lengths, {dim, dim_v}, kCausal);
    Inputs in = make_inputs(c, static_cast<uint64_t>(dim));
    poison_outside(c, in);
    check_whole(c, in);
  }
}

TEST(HopperPacks, NoKeysAtAll) {
  Case c = make_case(200, 0, 128, 128);
  c.tiles = {make_placed(0, 200, 0, 0, kFull)};
  check_case(c, 1);
}

TEST(HopperPacks, StridesAndScalesOfEveryKind) {
  for (const int64_t dim : {64, 128, 256, 512}) {
    for (const int64_t gap : {0, 1, 8}) {
      for (const Memory order : {Memory::kTokenMajor, Memory::kHeadMajor}) {
        for (const double scale : {0.11, 0.0, -0.11}) {
          Case c = make_case(400, 400, dim, dim);
          c.gap = gap;
          c.memory = order;
          c.batch = 2;
          c.scale = scale;
          c.tiles = {make_placed(0, 150, 0, 150, kCausal), make_placed(150, 150, 150, 150, kCausal),
                     make_placed(310, 80, 305, 95, kFull)};
          check_case(c, 70);
        }
      }
    }
  }
}

/// Steps of a ring: tiles that share rows, in one call and in several.
TEST(HopperPacks, RingOfTiles) {
  for (const auto& [dim, dim_v] : kKernelDims) {
    Case c = make_case(600, 600, dim, dim_v);
    c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(300, 300, 0, 300, kFull),
               make_placed(300, 300, 300, 300, kCausal)};
    const Inputs in = make_inputs(c, 5);
    check_merged(c, in);
    Carry value = empty_carry(c, DType::kF32);
    for (const PlacedTile& tile : {c.tiles[1], c.tiles[2], c.tiles[0]}) {
      forward(kHopper, lane_device(1), c, in, {&tile, 1}, value);
    }
    const Carry exact = exact_of(c, in);
    EXPECT_LT(relative_rms(value.o.values(), exact.o.values()), 4e-3) << c.text();
    EXPECT_LT(lse_error(value.lse.values(), exact.lse.values()), 1e-4) << c.text();
  }
}

TEST(HopperPacks, RowsThatSeeNoKeyKeepTheCarry) {
  for (const auto& [dim, dim_v] : kKernelDims) {
    Case c = make_case(170, 200, dim, dim_v);
    c.tiles = {make_placed(0, 150, 0, 200, {-kUnbounded, -4}),
               make_placed(150, 20, 0, 200, {5, 2})};
    const Inputs in = make_inputs(c, 2);
    Carry carry = empty_carry(c, DType::kF32);
    std::mt19937_64 random(3);
    carry.o.fill_normal(random);
    carry.lse.fill_normal(random);
    const Carry before{carry.o.copy(carry.o.shape()), carry.lse.copy(carry.lse.shape())};
    forward(kHopper, lane_device(1), c, in, c.tiles, carry);
    for (int64_t row = 0; row < 170; ++row) {
      const bool sees = row >= 4 && row < 150;
      EXPECT_EQ(before.lse.get(row, 1, 0) != carry.lse.get(row, 1, 0), sees) << dim << ": " << row;
      EXPECT_EQ(before.o.get(row, 1, 5) != carry.o.get(row, 1, 5), sees) << dim << ": " << row;
    }
  }
}

/// Scores that rise from block to block raise the reference again and again.
TEST(HopperPacks, RisingLargeAndLowScores) {
  for (const auto& [dim, dim_v] : kKernelDims) {
    for (const double slope : {0.02, -0.02, 0.2}) {
      Case c = make_case(200, 900, dim, dim_v);
      c.tiles = {make_placed(0, 200, 0, 900, {-kUnbounded, 700})};
      Inputs in = make_inputs(c, 4);
      for (int64_t row = 0; row < 200; ++row) {
        for (int64_t h = 0; h < 4; ++h) in.q.set(row, h, 0, 8 + row % 3);
      }
      for (int64_t key = 0; key < 900; ++key) {
        for (int64_t h = 0; h < 2; ++h) in.k.set(key, h, 0, slope * static_cast<double>(key) * 4);
      }
      check_merged(c, in);
      check_whole(c, in);
    }
  }
}

TEST(HopperPacks, NanInAQueryStaysThere) {
  Case c = make_case(140, 140, 128, 128);
  c.tiles = {make_placed(0, 140, 0, 140, kCausal)};
  Inputs in = make_inputs(c, 8);
  in.q.set(11, 1, 3, NAN);
  Carry carry = empty_carry(c, DType::kF32);
  forward(kHopper, lane_device(1), c, in, c.tiles, carry);
  for (int64_t row = 0; row < 140; ++row) {
    for (int64_t h = 0; h < 4; ++h) {
      EXPECT_EQ(std::isnan(carry.o.get(row, h, 0)), row == 11 && h == 1) << row;
    }
  }
}

}  // namespace
}  // namespace longspan::testing
