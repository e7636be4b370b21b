// Known defects of cuDNN 9.19 and its callers: each case failed somewhere, or does without care.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "gpu/cudnn/against_host.h"
#include "providers/cudnn/cudnn.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

/// Scores of about -`depth` at a scale of 1: keys are all but constant and queries their opposite.
Inputs deep_inputs(const Case& c, double depth, uint64_t seed) {
  Inputs in = make_inputs(c, seed);
  const double each = std::sqrt(depth / static_cast<double>(c.problem.dim_qk));
  const auto shift = [](Tensor& t, double by) {
    for (int64_t row = 0; row < t.shape().rows; ++row) {
      for (int64_t h = 0; h < t.shape().heads; ++h) {
        for (int64_t i = 0; i < t.shape().dim; ++i) {
          t.set(row, h, i, 0.01 * t.get(row, h, i) + by);
        }
      }
    }
  };
  shift(in.q, -each);
  shift(in.k, each);
  return in;
}

/// Rounding dS to 16 bits makes dq cancel to a tenth here, so it is judged by being finite alone.
void check_deep(Case c, uint64_t seed) {
  c.scale = 1;
  const Inputs in = deep_inputs(c, 150, seed);
  const Compared r = compute_both(c, in);
  EXPECT_LT(relative_rms(r.device.carry.o.values(), r.exact.carry.o.values()), 4e-3) << c.text();
  EXPECT_LT(lse_error(r.device.carry.lse.values(), r.exact.carry.lse.values()), 1e-4) << c.text();
  EXPECT_TRUE(finite(r.device.gradients.dq)) << c.text();
  EXPECT_TRUE(finite(r.device.gradients.dk)) << c.text();
  EXPECT_LT(relative_rms(r.device.gradients.dv.values(), r.exact.gradients.dv.values()), 4e-3)
      << c.text();
}

/// NaN in dq: keys of 64 modulo 128 without a mask, LSE below -88.
TEST(CudnnDefects, DeepScoresWithEveryRemainderOfKeys) {
  for (const auto& [qk, v] : {std::pair{64, 64}, {128, 128}, {192, 128}, {256, 256}}) {
    for (const int64_t nk : {64, 128 + 64, 320}) {
      Case c = make_case(130, nk, qk, v);
      c.tiles = {make_placed(0, 130, 0, nk, kFull)};
      check_deep(c, static_cast<uint64_t>(nk));
    }
  }
  for (int64_t nk = 256; nk < 384; nk += 9) {
    Case c = make_case(100, nk, 128, 128);
    c.tiles = {make_placed(0, 100, 0, nk, kFull)};
    check_deep(c, static_cast<uint64_t>(nk));
    c.tiles = {make_placed(0, 100, 0, nk, {-90, kUnbounded})};
    check_deep(c, static_cast<uint64_t>(nk));
  }
}

/// NaN in dk and dv: a single query, LSE far below 0, no mask.
TEST(CudnnDefects, DeepScoresOfOneQuery) {
  for (const int64_t nk : {2, 63, 64, 100, 128, 200, 448}) {
    Case c = make_case(1, nk, 128, 128);
    c.tiles = {make_placed(0, 1, 0, nk, kFull)};
    check_deep(c, static_cast<uint64_t>(nk));
  }
}

/// Huge dk and dv: a packed sequence that is all padding.
TEST(CudnnDefects, DeepScoresInPacksWithEmptySequences) {
  Case c = make_case(460, 460, 128, 128);
  int64_t row = 0;
  for (const int64_t length : {64, 0, 192, 0, 1, 127, 0, 64}) {
    c.tiles.push_back(make_placed(row, length, row, length, kFull));
    row += length;
  }
  check_deep(c, 9);
  for (PlacedTile& tile : c.tiles) tile.tile.band = kCausal;
  check_deep(c, 10);
}

/// Refused by cuDNN: one row against one key.
TEST(CudnnDefects, OneRowAndOneKeyInBackward) {
  Case c = make_case(6, 6, 64, 64);
  for (int64_t i = 0; i < 6; ++i) c.tiles.push_back(make_placed(i, 1, 5 - i, 1, kFull));
  const Inputs in = make_inputs(c, 1);
  const Compared r = compute_both(c, in);
  expect_close(c, r, 1.35);
}

/// Refused: a left bound with more rows than keys.
TEST(CudnnDefects, LeftBoundWithMoreRowsThanKeys) {
  for (const Band& band : {Band{-400, kUnbounded}, Band{-400, 0}, Band{-390, 11}}) {
    Case c = make_case(500, 130, 128, 128);
    c.tiles = {make_placed(0, 500, 0, 130, band)};
    check_case(c, 2);
  }
}

/// A window must not see one key more or less, nor the future.
TEST(CudnnDefects, WindowsAreExact) {
  for (const int64_t left : {0, 1, 63, 64, 127, 128}) {
    Case c = make_case(256, 256, 64, 64);
    c.tiles = {make_placed(0, 256, 0, 256, {-left, 0})};
    Inputs in = make_inputs(c, 3);
    const Carry before = compute_both(c, in).device.carry;
    // Keys outside the windows of rows from 200 on.
    std::mt19937_64 random(1);
    for (int64_t row = 0; row < 200 - left; ++row) {
      for (int64_t i = 0; i < 64; ++i) in.v.set(row, 0, i, 100.0 * pick(random, 1, 9));
    }
    Carry after = empty_carry(c, DType::kF32);
    forward(kCudnn, lane_device(1), c, in, c.tiles, after);
    for (int64_t row = 200; row < 256; ++row) {
      for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(before.o.get(row, 0, i), after.o.get(row, 0, i));
    }
    EXPECT_NE(before.o.get(199 - left, 0, 0), after.o.get(199 - left, 0, 0));
  }
}

/// dout of equal rows in one place, as an expanded tensor has them.
TEST(CudnnDefects, ExpandedOutputGradient) {
  Case c = make_case(200, 200, 128, 128);
  c.tiles = {make_placed(0, 200, 0, 200, kCausal)};
  Inputs in = make_inputs(c, 4);
  for (int64_t row = 1; row < 200; ++row) {
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < 128; ++i) in.dout.set(row, h, i, in.dout.get(0, h, i));
    }
  }
  const Compared r = compute_both(c, in);
  TensorView expanded = in.dout.view();
  expanded.stride_seq = 0;
  TileProblem problem = c.problem;
  problem.direction = Direction::kBackward;
  Gradients g = zero_gradients(c, DType::kF32);
  const Status status = compute(kCudnn, lane_device(1), problem,
                                BackwardTiles{.q = in.q.view(),
                                              .k = in.k.view(),
                                              .v = in.v.view(),
                                              .dout = expanded,
                                              .lse = r.lse.view(),
                                              .delta = r.delta.view(),
                                              .dq = g.dq.view(),
                                              .dk = g.dk.view(),
                                              .dv = g.dv.view(),
                                              .tiles = c.tiles,
                                              .scale = c.scale});
  ASSERT_TRUE(status.ok()) << status.error().text();
  EXPECT_EQ(g.dk.values(), r.device.gradients.dk.values());
  EXPECT_LT(relative_rms(g.dv.values(), r.device.gradients.dv.values()), 1e-3);
  EXPECT_LT(relative_rms(g.dq.values(), r.device.gradients.dq.values()), 1e-3);
}

/// Tensors that cuDNN cannot read in place, and scales that it may not be given.
TEST(CudnnDefects, StridesAndScalesOfEveryKind) {
  uint64_t seed = 40;
  for (const int64_t gap : {0, 1, 8}) {
    for (const Memory order : {Memory::kTokenMajor, Memory::kHeadMajor}) {
      for (const double scale : {0.11, 0.0, -0.11}) {
        Case c = make_case(400, 400, 64, 64);
        c.gap = gap;
        c.memory = order;
        c.batch = 2;
        c.scale = scale;
        // The second tile crosses the batch entries.
        c.tiles = {make_placed(0, 150, 0, 150, kCausal), make_placed(150, 150, 150, 150, kCausal),
                   make_placed(310, 80, 305, 95, kFull)};
        check_case(c, ++seed, 1.35);
      }
    }
  }
}

/// Backward is told delta: it must not depend on an O of its own.
TEST(CudnnDefects, DeltaIsTheCallers) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Case c = make_case(300, 300, 128, 128, dtype);
    c.tiles = {make_placed(0, 300, 0, 300, kCausal)};
    Inputs in = make_inputs(c, 8);
    // Rows with a single element, and none at all.
    for (int64_t i = 0; i < 128; ++i) {
      for (int64_t h = 0; h < 4; ++h) {
        if (i != 5) in.dout.set(7, h, i, 0);
        in.dout.set(8, h, i, 0);
      }
    }
    Compared r = compute_both(c, in);
    std::mt19937_64 random(2);
    r.delta.fill_normal(random, 5);
    for (int64_t h = 0; h < 4; ++h) r.delta.set(8, h, 0, 0);
    r.device.gradients = zero_gradients(c, DType::kF32);
    r.exact.gradients = zero_gradients(c, DType::kF64);
    const Tensor wide = r.delta.copy({.dtype = DType::kF64, .rows = 300, .heads = 4, .dim = 1});
    backward(reference(), device(0), c, in, c.tiles, r.exact.carry.lse, wide, r.exact.gradients);
    backward(kCudnn, lane_device(1), c, in, c.tiles, r.lse, r.delta, r.device.gradients);
    expect_close(c, r);
  }
}

}  // namespace
}  // namespace longspan::testing
