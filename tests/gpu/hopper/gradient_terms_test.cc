// Backward with soft caps, ALiBi, dropout and sinks against cuda/reference in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "gpu/hopper/gradients.h"
#include "providers/cuda/reference.h"
#include "providers/hopper/backward/layout.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};
constexpr Terms kAll{.softcap = true, .alibi = true, .dropout = true};
/// Steps of S and dP from the fewest on.
constexpr Dims kDims[] = {{136, 136}, {192, 128}, {64, 192}, {192, 192},
                          {256, 256}, {320, 320}, {512, 512}};

Scene scene_of(Dims dims, DType dtype, int64_t nq, int64_t nk, Band band, const Terms& terms,
               uint64_t seed) {
  Case c = make_case(nq, nk, dims.qk, dims.v, dtype);
  c.tiles = {make_placed(0, nq, 0, nk, band)};
  return make_scene(std::move(c), terms, seed);
}

void check(const Scene& scene, const BackwardWay& way = {}) {
  const ExactBackward exact = exact_backward(scene.c, scene.in);
  SCOPED_TRACE(scene.text());
  check_added(scene.c, scene.in, exact, way);
  check_whole_gradients(scene.c, scene.in, exact, way);
}

TEST(HopperGradientTerms, EachAloneAndAllTogether) {
  uint64_t seed = 0;
  for (const Dims dims : kDims) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const Terms& terms :
           {Terms{.softcap = true}, Terms{.alibi = true}, Terms{.dropout = true}, kAll}) {
        check(scene_of(dims, dtype, 384, 640, seed % 2 == 0 ? kFull : kCausal, terms, seed));
        ++seed;
      }
    }
  }
}

TEST(HopperGradientTerms, EveryMaskAndRemainder) {
  uint64_t seed = 100;
  for (const Dims dims : {Dims{192, 128}, Dims{256, 256}, Dims{512, 512}}) {
    for (const auto& [nq, nk] : {std::pair{300, 300}, {1, 257}, {129, 80}, {65, 7}, {192, 900}}) {
      for (const Band& band : {kFull, kCausal, Band{-40, 30}, Band{-150, -20}, Band{5, 2}}) {
        check(scene_of(dims, DType::kBF16, nq, nk, band, kAll, ++seed));
      }
    }
  }
}

TEST(HopperGradientTerms, CapsOfEverySize) {
  for (const Dims dims : {Dims{192, 192}, Dims{512, 512}}) {
    for (const double cap : {0.05, 1.0, 30.0, 50.0, 99.0, 101.0, 1e4, 1e12}) {
      for (const double scale : {0.02, 0.2, -0.2}) {
        Scene scene = scene_of(dims, DType::kF16, 200, 300, kCausal, {.softcap = true}, 7);
        scene.c.terms.softcap = cap;
        scene.c.scale = scale;
        check(scene);
      }
    }
  }
}

TEST(HopperGradientTerms, SlopesOfBothSignsAndFarTokens) {
  for (const int64_t far : {int64_t{0}, int64_t{1} << 24, int64_t{1} << 33}) {
    Scene scene = scene_of({256, 256}, DType::kBF16, 300, 300, kCausal, {.alibi = true}, 9);
    set_slopes_of_far_tokens(scene, far);
    check(scene);
  }
}

TEST(HopperGradientTerms, ProbabilitiesOfDropping) {
  for (const double probability : {1e-10, 0.01, 0.5, 0.9, 1 - 1e-12}) {
    Scene scene = scene_of({192, 192}, DType::kBF16, 260, 260, kCausal, {.dropout = true}, 13);
    scene.c.terms.dropout.probability = probability;
    check(scene);
  }
}

/// Of uniform weights, and rows of dout that are 1 in a column each, dV tells which pairs stay.
TEST(HopperGradientTerms, DropsThePairsThatTheConventionDrops) {
  constexpr int64_t kRows = 192, kKeys = 600;
  Case c = make_case(kRows, kKeys, kRows, kRows, DType::kF16);
  c.problem.heads_kv = c.problem.heads_q;
  c.problem.group = 1;
  c.tiles = {make_placed(0, kRows, 0, kKeys, kFull)};
  Scene scene = make_scene(std::move(c), {.dropout = true}, 11);
  scene.in.q.fill(0);
  scene.in.dout.fill(0);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t h = 0; h < 4; ++h) scene.in.dout.set(i, h, i, 1);
  }
  const ExactBackward exact = exact_backward(scene.c, scene.in);
  Gradients value = zero_gradients(scene.c, DType::kF32);
  compute_by_hopper(scene.c, call_of(scene.c, scene.in, exact, value));
  const Tile& tile = scene.c.tiles[0].tile;
  int wrong = 0;
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kKeys; ++j) {
        const ScoreIndex index{.sequence = tile.sequence,
                               .head = scene.c.terms.head_begin + h,
                               .q = tile.q.at(i),
                               .k = tile.k.at(j)};
        wrong += (value.dv.get(j, h, i) != 0) != scene.c.terms.dropout.keeps(index);
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

/// Tiles of a pack, whose gaps are poisoned, and tiles that share rows; chunks of a few units.
TEST(HopperGradientTerms, PacksAndRings) {
  for (const Dims dims : {Dims{192, 128}, Dims{256, 256}, Dims{512, 512}}) {
    for (const int64_t units : {1, 5, 4000}) {
      const BackwardWay way{.score_bytes = units * 2 * hopper::kUnitBytes};
      Case c = make_case(700, 720, dims.qk, dims.v);
      c.tiles = {make_placed(3, 150, 5, 160, kCausal), make_placed(160, 1, 170, 90, kFull),
                 make_placed(170, 260, 270, 270, {-60, 9}), make_placed(500, 130, 600, 0, kFull)};
      Scene pack = make_scene(std::move(c), kAll, 21);
      poison_outside(pack.c, pack.in);
      check(pack, way);
      c = make_case(600, 600, dims.qk, dims.v);
      c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(300, 300, 0, 300, kFull),
                 make_placed(300, 300, 300, 300, kCausal)};
      const Scene ring = make_scene(std::move(c), kAll, 22);
      check_added(ring.c, ring.in, exact_backward(ring.c, ring.in), way);
    }
  }
}

/// Several units for each block of threads.
TEST(HopperGradientTerms, LongSequences) {
  for (const Dims dims : {Dims{192, 192}, Dims{256, 256}, Dims{512, 512}}) {
    Case c = make_case(1536, 1536, dims.qk, dims.v);
    c.problem.heads_q = 8;
    c.problem.group = 4;
    c.tiles = {make_placed(0, 1536, 0, 1536, kCausal)};
    check(make_scene(std::move(c), kAll, 31));
  }
}

/// What a sink adds to LSE, and takes from O and delta, by the engine's definition.
ExactBackward with_sinks(const Case& c, const Inputs& in, double logit) {
  ExactBackward exact = exact_backward(c, in);
  const auto as = [](const Tensor& t) {
    Tensor::Shape shape = t.shape();
    shape.dtype = DType::kF64;
    return t.copy(shape);
  };
  for (int64_t row = 0; row < c.problem.capacity_q; ++row) {
    for (int64_t h = 0; h < c.problem.heads_q; ++h) {
      const double lse = exact.lse.get(row, h, 0), sink = logit + static_cast<double>(h);
      const double both = std::max(lse, sink) + std::log1p(std::exp(-std::abs(lse - sink)));
      exact.lse.set(row, h, 0, both);
      exact.delta.set(row, h, 0, exact.delta.get(row, h, 0) * std::exp(lse - both));
    }
  }
  exact.gradients = zero_gradients(c, DType::kF64);
  backward(kCudaReference, lane_device(1), c, in, c.tiles, as(exact.lse), as(exact.delta),
           exact.gradients);
  return exact;
}

TEST(HopperGradientTerms, RowsWithSinks) {
  uint64_t seed = 40;
  for (const double logit : {-3.0, 0.0, 6.0}) {
    for (const Terms& terms : {Terms{}, kAll}) {
      const Scene scene = scene_of({192, 192}, DType::kBF16, 300, 400, kCausal, terms, ++seed);
      const ExactBackward exact = with_sinks(scene.c, scene.in, logit);
      check_added(scene.c, scene.in, exact);
      check_whole_gradients(scene.c, scene.in, exact);
    }
  }
}

TEST(HopperGradientTerms, RandomScenes) {
  std::mt19937_64 random(79);
  int offers = 0;
  for (int i = 0; i < 16000 && offers < 200; ++i) {
    Case c = random_case(random);
    c.problem.dtype = i % 2 == 0 ? DType::kBF16 : DType::kF16;
    const Terms terms{.softcap = pick(random, 0, 1) == 1,
                      .alibi = pick(random, 0, 1) == 1,
                      .dropout = pick(random, 0, 1) == 1};
    TileProblem problem = c.problem;
    problem.direction = Direction::kBackward;
    if (declined(kHopper.consider(problem, lane_device(1))) != nullptr) continue;
    ++offers;
    const Scene scene = make_scene(std::move(c), terms, static_cast<uint64_t>(i));
    SCOPED_TRACE(scene.text());
    const BackwardWay way{.score_bytes = pick(random, 1, 30) * 2 * hopper::kUnitBytes};
    check_added(scene.c, scene.in, exact_backward(scene.c, scene.in), way);
  }
  EXPECT_EQ(offers, 200);
}

}  // namespace
}  // namespace longspan::testing
