// Soft caps, ALiBi, dropout and largest logits against cuda/reference in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gpu/hopper/against_reference.h"
#include "providers/cuda/reference.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};
constexpr Terms kAll{.softcap = true, .alibi = true, .dropout = true, .max_logit = true};

Tensor no_logits(const Scene& scene, DType dtype) {
  const int64_t first = scene.c.terms.head_begin;
  Tensor result({.dtype = dtype, .rows = 1, .heads = scene.slopes.shape().heads});
  for (int64_t h = 0; h < scene.c.problem.heads_q; ++h) result.set(0, first + h, 0, -kInfinity);
  return result;
}

/// Results and largest logits of one call.
struct Results {
  Carry carry;
  Tensor max_logit;
};

Results compute_call(const Provider& provider, const Scene& scene, bool whole, DType type_o,
                     DType type_lse) {
  Case c = scene.c;
  c.problem.features.whole = whole;
  Results r{{empty_carry(c, type_o).o, empty_carry(c, type_lse).lse}, no_logits(scene, type_lse)};
  if (whole) {
    r.carry.o.fill(NAN);
    r.carry.lse.fill(NAN);
  }
  if (c.problem.features.max_logit) c.max_logit = r.max_logit.view();
  forward(provider, lane_device(1), c, scene.in, c.tiles, r.carry);
  return r;
}

void expect_logits(const Scene& scene, const Tensor& value, const Tensor& exact) {
  const int64_t first = scene.c.terms.head_begin, end = first + scene.c.problem.heads_q;
  for (int64_t h = 0; h < value.shape().heads; ++h) {
    const double x = value.get(0, h, 0), y = exact.get(0, h, 0);
    EXPECT_EQ(std::isnan(x), h < first || h >= end) << "head " << h << " of " << scene.text();
    if (std::isnan(x) || x == y) continue;
    EXPECT_LT(std::abs(x - y), 1e-4 * std::max(1.0, std::abs(y)))
        << "head " << h << " of " << scene.text();
  }
}

/// Merged and whole results.
void check(const Scene& scene, bool whole_too = true) {
  const Results exact = compute_call(kCudaReference, scene, false, DType::kF64, DType::kF64);
  for (const bool whole : {false, true}) {
    if (whole && !whole_too) continue;
    const DType type_o = whole ? scene.c.problem.dtype : DType::kF32;
    const Results r = compute_call(kHopper, scene, whole, type_o, DType::kF32);
    Case c = scene.c;
    c.problem.features.whole = whole;
    expect_close(c, r.carry, exact.carry);
    expect_logits(scene, r.max_logit, exact.max_logit);
  }
}

Scene scene_of(Dims dims, DType dtype, int64_t nq, int64_t nk, Band band, const Terms& terms,
               uint64_t seed) {
  Case c = make_case(nq, nk, dims.qk, dims.v, dtype);
  c.tiles = {make_placed(0, nq, 0, nk, band)};
  return make_scene(std::move(c), terms, seed);
}

TEST(HopperTerms, EachAloneInEveryKernel) {
  uint64_t seed = 0;
  for (const Dims dims : kKernelDims) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const Terms& terms : {Terms{.softcap = true}, Terms{.alibi = true},
                                 Terms{.dropout = true}, Terms{.max_logit = true}, kAll}) {
        check(scene_of(dims, dtype, 384, 640, seed % 2 == 0 ? kFull : kCausal, terms, seed));
        ++seed;
      }
    }
  }
}

TEST(HopperTerms, EveryMaskAndRemainder) {
  uint64_t seed = 100;
  for (const Dims dims : kKernelDims) {
    for (const auto& [nq, nk] : {std::pair{300, 300}, {1, 257}, {129, 80}, {65, 7}, {192, 900}}) {
      for (const Band& band : {kFull, kCausal, Band{-40, 30}, Band{-150, -20}, Band{5, 2}}) {
        check(scene_of(dims, DType::kBF16, nq, nk, band, kAll, ++seed));
      }
    }
  }
}

/// tanh is exact enough whatever the cap.
TEST(HopperTerms, CapsOfEverySize) {
  for (const Dims dims : {Dims{64, 64}, Dims{128, 128}, Dims{512, 512}}) {
    for (const double cap : {0.05, 1.0, 30.0, 50.0, 99.0, 101.0, 1e4, 1e12}) {
      for (const double scale : {0.02, 1.0, -1.0}) {
        const Terms terms{.softcap = true, .max_logit = true};
        Scene scene = scene_of(dims, DType::kF16, 200, 300, kCausal, terms, 7);
        scene.c.terms.softcap = cap;
        scene.c.scale = scale;
        check(scene);
      }
    }
  }
}

TEST(HopperTerms, SlopesOfBothSignsAndFarTokens) {
  for (const Dims dims : {Dims{64, 64}, Dims{192, 128}, Dims{320, 320}}) {
    for (const int64_t far : {int64_t{0}, int64_t{1} << 24, int64_t{1} << 33}) {
      Scene scene = scene_of(dims, DType::kBF16, 300, 300, kCausal, {.alibi = true}, 9);
      set_slopes_of_far_tokens(scene, far);
      check(scene);
    }
  }
}

/// Of uniform weights and values that are 1 for one key of each column, O tells which pairs stay.
TEST(HopperTerms, DropsThePairsThatTheConventionDrops) {
  for (const Dims dims : kKernelDims) {
    const int64_t keys = dims.v;
    Scene scene = scene_of(dims, DType::kF16, 200, keys, kFull, {.dropout = true}, 11);
    scene.in.q.fill(0);
    scene.in.v.fill(0);
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t h = 0; h < 2; ++h) scene.in.v.set(j, h, j, 1);
    }
    const Results r = compute_call(kHopper, scene, false, DType::kF32, DType::kF32);
    const Tile& tile = scene.c.tiles[0].tile;
    const Dropout& dropout = scene.c.terms.dropout;
    int wrong = 0;
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < 200; ++i) {
        for (int64_t j = 0; j < keys; ++j) {
          const ScoreIndex index{.sequence = tile.sequence,
                                 .head = scene.c.terms.head_begin + h,
                                 .q = tile.q.at(i),
                                 .k = tile.k.at(j)};
          wrong += (r.carry.o.get(i, h, j) != 0) != dropout.keeps(index);
        }
      }
    }
    EXPECT_EQ(wrong, 0) << dims.qk << "/" << dims.v;
  }
}

TEST(HopperTerms, ProbabilitiesOfDropping) {
  for (const double probability : {1e-10, 0.01, 0.5, 0.99, 1 - 1e-12}) {
    Scene scene = scene_of({128, 128}, DType::kBF16, 260, 260, kCausal, {.dropout = true}, 13);
    scene.c.terms.dropout.probability = probability;
    check(scene);
  }
}

/// Tiles of a pack, whose gaps are poisoned, and tiles that share rows.
TEST(HopperTerms, PacksAndRings) {
  for (const Dims dims : kKernelDims) {
    Case c = make_case(700, 720, dims.qk, dims.v);
    c.tiles = {make_placed(3, 150, 5, 160, kCausal), make_placed(160, 1, 170, 90, kFull),
               make_placed(170, 260, 270, 270, {-60, 9}), make_placed(500, 130, 600, 0, kFull)};
    Scene pack = make_scene(std::move(c), kAll, 21);
    poison_outside(pack.c, pack.in);
    check(pack);
    c = make_case(600, 600, dims.qk, dims.v);
    c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(300, 300, 0, 300, kFull),
               make_placed(300, 300, 300, 300, kCausal)};
    check(make_scene(std::move(c), kAll, 22), false);
  }
}

/// More blocks of queries than multiprocessors: each leaves its largest logit behind.
TEST(HopperTerms, LongSequences) {
  for (const Dims dims : kKernelDims) {
    Case c = make_case(1536, 1536, dims.qk, dims.v);
    c.problem.heads_q = dims.qk > 256 ? 8 : 24;
    c.problem.group = c.problem.heads_q / 2;
    c.tiles = {make_placed(0, 1536, 0, 1536, kCausal)};
    check(make_scene(std::move(c), kAll, 31));
  }
}

}  // namespace
}  // namespace longspan::testing
