// cudnn against float64: dims, types, masks, groups of heads, tiles of a ring.
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "gpu/cudnn/against_host.h"
#include "providers/cudnn/cudnn.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

/// A call of several tiles rounds each partial result to 16 bits.
constexpr double kPartials = 1.35;

TEST(CudnnShapes, IsOffered) {
  const Case c = make_case(128, 128, 128, 128);
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    TileProblem problem = c.problem;
    problem.direction = direction;
    const Verdict verdict = kCudnn.consider(problem, lane_device(1));
    const Decline* const decline = declined(verdict);
    ASSERT_EQ(decline, nullptr) << decline->detail;
    EXPECT_TRUE(std::get<Offer>(verdict).partials_16bit);
    std::printf("%s\n", std::get<Offer>(verdict).detail.c_str());
  }
}

void check_dims(int64_t qk, int64_t v, DType dtype) {
  for (const Band& band : {kCausal, kFull}) {
    Case c = make_case(260, 300, qk, v, dtype);
    c.tiles = {make_placed(0, 260, 0, 300, band)};
    check_case(c, static_cast<uint64_t>(qk * 1000 + v));
  }
}

TEST(CudnnShapes, EveryDim) {
  for (const auto& [qk, v] : {std::pair{8, 8},
                              {32, 32},
                              {64, 64},
                              {72, 72},
                              {80, 80},
                              {96, 96},
                              {128, 128},
                              {160, 160},
                              {192, 192},
                              {256, 256},
                              {192, 128},
                              {128, 64},
                              {64, 128}}) {
    check_dims(qk, v, DType::kBF16);
  }
}

TEST(CudnnShapes, HalfPrecision) {
  for (const auto& [qk, v] : {std::pair{64, 64}, {128, 128}, {256, 256}, {192, 128}}) {
    check_dims(qk, v, DType::kF16);
  }
}

TEST(CudnnShapes, ForwardAlone) {
  Case c = make_case(260, 300, 256, 128);
  c.tiles = {make_placed(0, 260, 0, 300, kCausal)};
  const Inputs in = make_inputs(c, 2);
  Carry value = empty_carry(c, DType::kF32);
  Carry exact = empty_carry(c, DType::kF64);
  forward(kCudnn, lane_device(1), c, in, c.tiles, value);
  forward(reference(), device(0), c, in, c.tiles, exact);
  EXPECT_LT(relative_rms(value.o.values(), exact.o.values()), 4e-3);
  EXPECT_LT(lse_error(value.lse.values(), exact.lse.values()), 1e-4);
}

TEST(CudnnShapes, EveryMask) {
  uint64_t seed = 100;
  const std::pair<int64_t, int64_t> sizes[] = {{300, 300}, {200, 430}, {430, 200}, {129, 640}};
  for (const auto& [nq, nk] : sizes) {
    const int64_t shift = nk - nq;
    const Band bands[] = {kFull,       kCausal,           {-kUnbounded, shift}, {-40, 0},
                          {-40, 30},   {-40, kUnbounded}, {-kUnbounded, 25},    {0, 0},
                          {-150, -20}, {30, 170},         {shift - 64, shift}};
    for (const Band& band : bands) {
      Case c = make_case(nq, nk, 128, 128);
      c.tiles = {make_placed(0, nq, 0, nk, band)};
      check_case(c, ++seed);
    }
  }
}

/// Bands that backward computes in two parts.
TEST(CudnnShapes, WideBands) {
  for (const Band& band : {Band{-300, 300}, Band{-kUnbounded, 400}, Band{-100, 900}}) {
    Case c = make_case(2000, 2200, 64, 64);
    c.problem.heads_q = c.problem.heads_kv = 16;
    c.problem.group = 1;
    c.tiles = {make_placed(0, 2000, 0, 2200, band)};
    check_case(c, 7, kPartials);
  }
}

TEST(CudnnShapes, GroupsOfHeads) {
  struct Heads {
    int64_t q, kv, group, offset;
  };
  for (const Heads h :
       {Heads{4, 4, 1, 0}, {6, 2, 3, 0}, {8, 1, 8, 0}, {3, 1, 8, 2}, {4, 3, 2, 0}}) {
    Case c = make_case(201, 170, 64, 64);
    c.problem.heads_q = h.q;
    c.problem.heads_kv = h.kv;
    c.problem.group = h.group;
    c.problem.group_offset = h.offset;
    c.tiles = {make_placed(10, 181, 20, 149, kCausal)};
    check_case(c, static_cast<uint64_t>(h.q * 10 + h.kv));
  }
}

/// Tiny tiles: every remainder of blocks, one row, one key, both.
TEST(CudnnShapes, SmallTiles) {
  for (const auto& [nq, nk] : {std::pair{1, 1},
                               {1, 2},
                               {2, 1},
                               {1, 77},
                               {77, 1},
                               {1, 64},
                               {3, 5},
                               {5, 3},
                               {63, 65},
                               {65, 63},
                               {64, 64},
                               {127, 129},
                               {128, 192}}) {
    for (const Band& band : {kFull, kCausal}) {
      Case c = make_case(nq, nk, 128, 128);
      c.tiles = {make_placed(0, nq, 0, nk, band)};
      const Inputs in = make_inputs(c, 3);
      const Compared r = compute_both(c, in);
      EXPECT_LT(relative_rms(r.device.carry.o.values(), r.exact.carry.o.values()), 4e-3);
      EXPECT_LT(relative_rms(r.device.gradients.dv.values(), r.exact.gradients.dv.values()), 4e-3);
      // Rows of few keys cancel: p (dP - delta).
      EXPECT_TRUE(finite(r.device.gradients.dq) && finite(r.device.gradients.dk)) << c.text();
      EXPECT_TRUE(finite(r.device.carry.lse)) << c.text();
    }
  }
}

/// Steps of a ring: tiles that share rows, in one call and in several.
TEST(CudnnShapes, RingOfTiles) {
  Case c = make_case(600, 600, 128, 128);
  c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(300, 300, 0, 300, kFull),
             make_placed(300, 300, 300, 300, kCausal)};
  const Inputs in = make_inputs(c, 5);
  Compared r = compute_both(c, in);
  expect_close(c, r, kPartials);
  r.device.carry = empty_carry(c, DType::kF32);
  r.device.gradients = zero_gradients(c, DType::kF32);
  for (const PlacedTile& tile : {c.tiles[1], c.tiles[2], c.tiles[0]}) {
    forward(kCudnn, lane_device(1), c, in, {&tile, 1}, r.device.carry);
    backward(kCudnn, lane_device(1), c, in, {&tile, 1}, r.lse, r.delta, r.device.gradients);
  }
  expect_close(c, r, kPartials);
}

}  // namespace
}  // namespace longspan::testing
