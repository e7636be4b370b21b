// Score terms of cpu/tiled: blocks against pairs, several blocks a tile, what changes no bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "providers/cpu/products.h"
#include "providers/cpu/terms_simd.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

constexpr int64_t kRows = 6;
constexpr int64_t kLanes = 3 * cpu::kChunk;
constexpr int64_t kLd = kLanes + cpu::kChunk;

/// A block aligned as scratch memory is.
template <class T>
struct alignas(64) Block {
  T values[kLanes * kLd] = {};
};

template <class T>
void check_dropout(const Dropout& dropout, const ScoreIndex& first) {
  for (const bool lanes_are_queries : {false, true}) {
    std::vector<uint32_t> rows, lanes;
    const auto row = [&](int64_t i) { return (lanes_are_queries ? first.k : first.q) + 2 * i; };
    const auto lane = [&](int64_t i) { return (lanes_are_queries ? first.q : first.k) + 3 * i; };
    for (int64_t i = 0; i < kRows; ++i) rows.push_back(static_cast<uint32_t>(row(i)));
    for (int64_t i = 0; i < kLanes; ++i) lanes.push_back(static_cast<uint32_t>(lane(i)));
    Block<T> block;
    cpu::terms_simd<T>().dropout({.factors = block.values,
                                  .ld = kLd,
                                  .lanes = kLanes,
                                  .rows = kRows,
                                  .row_token = rows.data(),
                                  .lane_token = lanes.data(),
                                  .lanes_are_queries = lanes_are_queries,
                                  .sequence = static_cast<uint32_t>(first.sequence),
                                  .head = static_cast<uint32_t>(first.head),
                                  .key = dropout.key(),
                                  .threshold = dropout.threshold(),
                                  .factor = T{3}});
    for (int64_t i = 0; i < kRows * kLanes; ++i) {
      ScoreIndex at = first;
      at.q = lanes_are_queries ? lane(i % kLanes) : row(i / kLanes);
      at.k = lanes_are_queries ? row(i / kLanes) : lane(i % kLanes);
      ASSERT_EQ(block.values[i / kLanes * kLd + i % kLanes], T(dropout.keeps(at) ? 3 : 0))
          << "probability " << dropout.probability << " q " << at.q << " k " << at.k;
    }
  }
}

TEST(TiledTerms, DropoutIsThatOfThePairs) {
  const ScoreIndex places[] = {
      {}, {3, 70, 1000, 20}, {999, 5, (int64_t{1} << 31) - 20, 0x7fffff00}};
  // The last probability drops all words.
  for (const double probability : {0.0, 1e-9, 0.1, 0.5, 0.999, 1 - 0x1p-53}) {
    for (const ScoreIndex& place : places) {
      check_dropout<float>({probability, 0x123456789abcdef, 7}, place);
      check_dropout<double>({probability, 0x123456789abcdef, 7}, place);
    }
  }
}

/// Softcap 1 of numbers from tiny to huge.
template <class T>
void check_softcap(double bar) {
  Block<T> block;
  Block<T> derivative;
  std::vector<T> numbers;
  for (int64_t i = 0; i < kRows * kLanes; ++i) {
    numbers.push_back(static_cast<T>((i % 2 == 0 ? 1 : -1) * std::pow(1.07, i - 200)));
  }
  numbers[0] = 0;
  numbers[1] = std::numeric_limits<T>::infinity();
  numbers[2] = -numbers[1];
  numbers[3] = std::numeric_limits<T>::quiet_NaN();
  const auto at = [](size_t i) { return i / kLanes * kLd + i % kLanes; };
  for (size_t i = 0; i < numbers.size(); ++i) block.values[at(i)] = numbers[i];
  cpu::terms_simd<T>().logits({.scores = block.values,
                               .ld = kLd,
                               .lanes = kLanes,
                               .rows = kRows,
                               .softcap = 1,
                               .derivative = derivative.values});
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double x = numbers[i];
    const double tanh = block.values[at(i)];
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(tanh));
      continue;
    }
    EXPECT_LE(std::abs(tanh - std::tanh(x)), bar * std::abs(std::tanh(x))) << x;
    const double expected = 1 / (std::cosh(x) * std::cosh(x));
    // The derivative e^(-2x) takes up the rounding of 2x.
    const double rounded = bar * std::max(1.0, std::min(std::abs(x), 40.0)) * expected;
    EXPECT_LE(std::abs(derivative.values[at(i)] - expected), rounded + 1e-28) << x;
  }
}

TEST(TiledTerms, SoftcapHoldsAllDigits) {
  check_softcap<float>(3e-7);
  check_softcap<double>(1e-15);
}

/// Both directions give a pair the same bits: rows and lanes change places.
template <class T>
void check_turned() {
  constexpr int64_t kSize = kLanes;
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(0, 3);
  Block<T> rows, lanes, row_bias, lane_bias;
  std::vector<T> q, k;
  for (int64_t i = 0; i < kSize; ++i) {
    q.push_back(static_cast<T>(i * 3 + 40));
    k.push_back(static_cast<T>(i * 2));
    for (int64_t j = 0; j < kSize; ++j) {
      rows.values[i * kLd + j] = lanes.values[j * kLd + i] = static_cast<T>(normal(random));
      row_bias.values[i * kLd + j] = lane_bias.values[j * kLd + i] = static_cast<T>(normal(random));
    }
  }
  cpu::LogitBlock<T> block = {.scores = rows.values,
                              .ld = kLd,
                              .lanes = kSize,
                              .rows = kSize,
                              .scale = static_cast<T>(0.123),
                              .softcap = static_cast<T>(1.7),
                              .slope = static_cast<T>(0.037),
                              .row_place = q.data(),
                              .lane_place = k.data(),
                              .bias = row_bias.values};
  cpu::terms_simd<T>().logits(block);
  Block<T> derivative;
  block.scores = lanes.values;
  block.row_place = k.data();
  block.lane_place = q.data();
  block.bias = lane_bias.values;
  block.derivative = derivative.values;
  cpu::terms_simd<T>().logits(block);
  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < kSize; ++j) {
      ASSERT_EQ(rows.values[i * kLd + j], lanes.values[j * kLd + i]) << i << " " << j;
    }
  }
}

TEST(TiledTerms, ScoresOfBothDirectionsAreEqual) {
  check_turned<float>();
  check_turned<double>();
}

/// More rows than a block on both sides.
Case blocks_case(DType dtype, Band band) {
  Case c;
  c.problem = {.dtype = dtype,
               .heads_q = 3,
               .heads_kv = 2,
               .group = 2,
               .dim_qk = 20,
               .dim_v = 12,
               .capacity_q = 200,
               .capacity_k = 190};
  c.scale = 0.3;
  c.tiles = {make_placed(0, 190, 0, 150, band), make_placed(0, 200, 20, 170, band),
             make_placed(190, 10, 0, 100, {})};
  return c;
}

constexpr Terms all_terms(Bias bias) {
  return {.softcap = true,
          .alibi = true,
          .bias = bias,
          .dropout = true,
          .score = true,
          .visible = true,
          .max_logit = true};
}
constexpr Bias kBiases[] = {Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S};

TEST(TiledTerms, SeveralBlocksGiveTheDefinition) {
  const Device cpu = device(3);
  const DType types[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  for (const Bias bias : kBiases) {
    const auto which = static_cast<uint64_t>(bias);
    const Band band = which % 2 == 0 ? Band{-140, 30} : Band{-kUnbounded, 0};
    Scene all = make_scene(blocks_case(types[which % 4], band), all_terms(bias), which);
    check_scene(tiled(), all, cpu);
    Scene alone = make_scene(blocks_case(types[(which + 2) % 4], band), {.bias = bias}, which);
    check_scene(tiled(), alone, cpu);
  }
}

void check_threads(Case c, const Terms& terms) {
  Scene scene = make_scene(std::move(c), terms, 9);
  const SceneOutcome expected = run_scene(tiled(), scene, device(1), DType::kF32);
  const Device many = device(5);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const SceneOutcome r = run_scene(tiled(), scene, many, DType::kF32);
    ASSERT_EQ(r.gradients.dq.values(), expected.gradients.dq.values()) << scene.text();
    ASSERT_EQ(r.gradients.dk.values(), expected.gradients.dk.values()) << scene.text();
    ASSERT_EQ(r.gradients.dv.values(), expected.gradients.dv.values()) << scene.text();
    ASSERT_EQ(r.dbias.values(), expected.dbias.values()) << scene.text();
  }
}

TEST(TiledTerms, ThreadsChangeNoBitOfSharedBias) {
  Case packed = blocks_case(DType::kF32, {});  // tiles that share nothing but the bias
  packed.problem.capacity_q = packed.problem.capacity_k = 4000;
  packed.tiles.clear();
  for (int64_t i = 0; i < 200; ++i) packed.tiles.push_back(make_placed(20 * i, 20, 20 * i, 20, {}));
  for (const Bias bias : kBiases) {
    check_threads(blocks_case(DType::kF32, {-kUnbounded, 40}), all_terms(bias));
    check_threads(packed, {.bias = bias});
  }
}

TEST(TiledTerms, LongChainsOfASharedBiasHoldTheBar) {
  Case c;
  c.problem = {
      .heads_q = 8, .heads_kv = 8, .dim_qk = 8, .dim_v = 8, .capacity_q = 1500, .capacity_k = 40};
  c.scale = 1 / std::sqrt(8.0);
  for (int64_t i = 0; i < 50; ++i) c.tiles.push_back(make_placed(30 * i, 30, 0, 40, {}));
  for (const Bias bias : {Bias::k11, Bias::k111S}) {
    Scene scene = make_scene(c, {.bias = bias}, 4);
    check_scene(tiled(), scene, device(2));
  }
}

}  // namespace
}  // namespace longspan::testing
