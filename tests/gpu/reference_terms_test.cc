// Score terms of cuda/reference over several chunks of rows, wide heads and large head counts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Bias kBiases[] = {Bias::kNone, Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S};

const Provider& on_device() { return *fixed_order_providers().front(); }

constexpr Terms all_terms(Bias bias) {
  return {.softcap = true, .alibi = true, .bias = bias, .dropout = true, .max_logit = true};
}

/// More rows than a chunk on both sides, and tiles that share rows.
Case long_case(DType dtype) {
  Case c;
  c.problem = {.dtype = dtype,
               .heads_q = 5,
               .heads_kv = 3,
               .group = 2,
               .group_offset = 1,
               .dim_qk = 24,
               .dim_v = 9,
               .capacity_q = 300,
               .capacity_k = 310};
  c.scale = 0.2;
  c.tiles = {make_placed(0, 290, 3, 300, {-kUnbounded, 7}), make_placed(5, 200, 100, 140, {}),
             make_placed(280, 20, 0, 310, {-250, 250})};
  return c;
}

TEST(CudaReferenceTerms, ManyChunksOfEveryBiasAndType) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Bias bias : kBiases) {
      Scene scene = make_scene(long_case(dtype), all_terms(bias), 10 + static_cast<uint64_t>(bias));
      check_scene(on_device(), scene, lane_device(1));
    }
  }
}

TEST(CudaReferenceTerms, WidestHeads) {
  for (const auto& [dim_qk, dim_v] : {std::pair{576, 512}, {1, 576}, {130, 1}}) {
    Case c = one_tile(40, 150, {-kUnbounded, 90}, DType::kF16);
    c.problem.dim_qk = dim_qk;
    c.problem.dim_v = dim_v;
    c.scale = 1 / std::sqrt(static_cast<double>(dim_qk));
    Scene scene = make_scene(std::move(c), all_terms(Bias::kBH), static_cast<uint64_t>(dim_qk));
    check_scene(on_device(), scene, lane_device(1));
  }
}

/// Sequences without an extent of their own in the bias: their tiles add to the same elements.
TEST(CudaReferenceTerms, SequencesShareABias) {
  for (const Bias bias : {Bias::k11, Bias::k1H, Bias::k111S}) {
    Case c = one_tile(300, 300, {}, DType::kF32);
    c.tiles.clear();
    for (int64_t i = 0; i < 3; ++i) {
      c.tiles.push_back(make_placed(100 * i, 90, 100 * i, 90, {-kUnbounded, 10}));
      c.tiles.back().tile.sequence = static_cast<int32_t>(i);
      c.tiles.back().tile.q = c.tiles.back().tile.k = {0, 90, 1};
    }
    Scene scene = add_terms(std::move(c), {.bias = bias, .dropout = true}, 7);
    check_scene(on_device(), scene, lane_device(1));
  }
}

/// A bias of one query, whose extents of 1 must not be taken for shared ones.
TEST(CudaReferenceTerms, OneQueryASequence) {
  for (const Bias bias : {Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S}) {
    Case c = one_tile(3, 60, {}, DType::kF32);
    c.tiles.clear();
    for (int64_t i = 0; i < 3; ++i) {
      c.tiles.push_back(make_placed(i, 1, 20 * i, 20, {}));
      c.tiles.back().tile.sequence = static_cast<int32_t>(i);
      c.tiles.back().tile.q = {0, 1, 1};
      c.tiles.back().tile.k = {0, 20, 1};
    }
    Scene scene = add_terms(std::move(c), {.bias = bias}, 8);
    check_scene(on_device(), scene, lane_device(1));
  }
}

TEST(CudaReferenceTerms, LargestLogitsDoNotDependOnTheirOrder) {
  for (const DType wide : {DType::kF32, DType::kF64}) {
    Scene scene = make_scene(long_case(DType::kF16), {.max_logit = true}, 3);
    const std::vector<double> expected = define(scene).max_logit;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const SceneOutcome r = run_scene(on_device(), scene, lane_device(1), wide);
      for (int64_t head = 0; head < scene.c.problem.heads_q; ++head) {
        const double value = r.max_logit.get(0, scene.c.terms.head_begin + head, 0);
        const double exact = expected[static_cast<size_t>(head)];
        const double bar = wide == DType::kF64 ? 1e-14 : 1e-7;
        EXPECT_NEAR(value, exact, bar * std::max(1.0, std::abs(exact)));
      }
    }
  }
}

/// Heads that share a number of -0 and 0 as their largest logit report one of them, always.
TEST(CudaReferenceTerms, LargestLogitOfZeros) {
  Scene scene = make_scene(one_tile(40, 50, {}), {.max_logit = true}, 3);
  scene.in.k.fill(0);
  for (int64_t row = 0; row < 40; ++row) {
    for (int64_t i = 0; i < 20; ++i) scene.in.q.set(row, 0, i, row % 2 == 0 ? -1 : 1);
  }
  for (int repeat = 0; repeat < 5; ++repeat) {
    const SceneOutcome r = run_scene(on_device(), scene, lane_device(1), DType::kF32);
    const double value = r.max_logit.get(0, scene.c.terms.head_begin, 0);
    EXPECT_EQ(value, 0);
    EXPECT_FALSE(std::signbit(value));
  }
}

/// A bias of -inf hides rows whose values may hold anything.
TEST(CudaReferenceTerms, ValuesOfHiddenKeysMayHoldNan) {
  Scene scene = add_terms(one_tile(150, 200, {}, DType::kBF16), {.bias = Bias::k111S}, 5);
  Tensor& bias = scene.bias;
  const PlacedTile& t = scene.c.tiles[0];
  for (int64_t j = 0; j < 200; j += 3) {
    bias.set(0, 0, t.tile.k.at(j), -kInfinity);
    for (int64_t i = 0; i < 12; ++i) scene.in.v.set(j, 0, i, NAN);
  }
  const SceneOutcome r = run_scene(on_device(), scene, lane_device(1), DType::kF64);
  for (const Tensor* tensor : {&r.carry.o, &r.gradients.dq, &r.gradients.dk, &r.gradients.dv}) {
    for (const double value : tensor->values()) ASSERT_TRUE(std::isfinite(value));
  }
}

/// More blocks than fit the second and third dimension of a grid.
TEST(CudaReferenceTerms, ManyHeads) {
  Case c = one_tile(3, 5, {}, DType::kF32);
  c.problem.heads_q = 40000;
  c.problem.heads_kv = 20000;
  c.problem.dim_qk = 3;
  c.problem.dim_v = 2;
  Scene scene = make_scene(std::move(c), {.alibi = true, .dropout = true, .max_logit = true}, 6);
  check_scene(on_device(), scene, lane_device(1));
}

}  // namespace
}  // namespace longspan::testing
