// Hidden pairs of score terms: what must not be read, what must stay as it is.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class TermEdgesOf : public ::testing::TestWithParam<const Provider*> {
 protected:
  const Provider& provider() const { return *GetParam(); }
  const Device device_ = lane_device(2);
};

INSTANTIATE_TEST_SUITE_P(Lane, TermEdgesOf, ::testing::ValuesIn(lane_providers()), label);

constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

/// One tile whose row i holds token i on both sides.
Scene plain_tokens(int64_t nq, int64_t nk, DType dtype, const Terms& terms) {
  Case c = one_tile(nq, nk, {-kUnbounded, 20}, dtype);
  c.tiles[0].tile.q = {0, nq, 1};
  c.tiles[0].tile.k = {0, nk, 1};
  return add_terms(std::move(c), terms, 3);
}

void poison_row(Tensor& t, int64_t row) {
  for (int64_t head = 0; head < t.shape().heads; ++head) {
    for (int64_t i = 0; i < t.shape().dim; ++i) t.set(row, head, i, NAN);
  }
}

bool hidden_key(int64_t k) { return k % 3 == 1 || k >= 60; }
bool hidden_query(int64_t q) { return q % 5 == 2; }

/// Hidden rows of the scene become NaN.
void poison_hidden(Scene& scene) {
  for (int64_t row = 0; row < scene.c.problem.capacity_q; ++row) {
    if (!hidden_query(row)) continue;
    poison_row(scene.in.q, row);
    poison_row(scene.in.dout, row);
  }
  for (int64_t row = 0; row < scene.c.problem.capacity_k; ++row) {
    if (!hidden_key(row)) continue;
    poison_row(scene.in.k, row);
    poison_row(scene.in.v, row);
  }
}

TEST_P(TermEdgesOf, RowsThatCallbacksHideMayHoldNan) {
  for (const DType dtype : kTypes) {
    Scene scene = plain_tokens(
        50, 70, dtype,
        {.softcap = true, .bias = Bias::k11, .dropout = true, .visible = true, .max_logit = true});
    scene.modification->visible = [](const ScoreIndex& at) {
      return !hidden_key(at.k) && !hidden_query(at.q);
    };
    poison_hidden(scene);
    check_scene(provider(), scene, device_);
    scene.modification->visible = nullptr;
    scene.modification->score = [](double score, const ScoreIndex& at) {
      return hidden_key(at.k) || hidden_query(at.q) ? -kInfinity : 0.5 * score;
    };
    scene.modification->derivative = [](double, const ScoreIndex&) { return 0.5; };
    check_scene(provider(), scene, device_);
  }
}

TEST_P(TermEdgesOf, BiasOfMinusInfinityHides) {
  for (const DType dtype : kTypes) {
    Scene scene = plain_tokens(50, 70, dtype, {.alibi = true, .bias = Bias::kBH, .dropout = true});
    Tensor& bias = scene.bias;
    const int64_t queries = bias.shape().rows / bias.shape().batch;
    for (int64_t row = 0; row < bias.shape().rows; ++row) {
      const int64_t q = row % queries;
      for (int64_t head = 0; head < bias.shape().heads; ++head) {
        for (int64_t k = 0; k < bias.shape().dim; ++k) {
          if ((q + k) % 3 == 0 || q % 7 == 4) bias.set(row, head, k, -kInfinity);
        }
      }
    }
    check_scene(provider(), scene, device_);
  }
}

TEST_P(TermEdgesOf, RowsWithoutVisibleKeysKeepTheCarry) {
  Scene scene = plain_tokens(40, 60, DType::kF32, {.visible = true});
  if (!offered(provider(), device_, scene.c.problem)) return;
  scene.modification->visible = [](const ScoreIndex& at) { return !hidden_query(at.q); };
  Carry carry = empty_carry(scene.c, DType::kF32);
  std::mt19937_64 random(3);
  carry.o.fill_normal(random);
  carry.lse.fill_normal(random);
  const Carry before{carry.o.copy(carry.o.shape()), carry.lse.copy(carry.lse.shape())};
  forward(provider(), device_, scene.c, scene.in, scene.c.tiles, carry);
  for (int64_t row = 0; row < 40; ++row) {
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(before.lse.get(row, h, 0) == carry.lse.get(row, h, 0), hidden_query(row)) << row;
      for (int64_t i = 0; i < 12; ++i) {
        EXPECT_EQ(before.o.get(row, h, i) == carry.o.get(row, h, i), hidden_query(row)) << row;
      }
    }
  }
}

TEST_P(TermEdgesOf, NanInARowStaysVisible) {
  const bool callbacks = !lane_device(1).is_cuda();
  Scene scene = plain_tokens(20, 20, DType::kF32, {.softcap = true, .score = callbacks});
  if (!offered(provider(), device_, scene.c.problem)) return;
  scene.in.q.set(11, 1, 3, NAN);
  Carry carry = empty_carry(scene.c, DType::kF32);
  forward(provider(), device_, scene.c, scene.in, scene.c.tiles, carry);
  for (int64_t row = 0; row < 20; ++row) {
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(std::isnan(carry.o.get(row, h, 0)), row == 11 && h == 1) << row;
    }
  }
}

TEST_P(TermEdgesOf, MaxLogitIsOnlyRaised) {
  Scene scene = plain_tokens(20, 30, DType::kF32, {.max_logit = true});
  if (!offered(provider(), device_, scene.c.problem)) return;
  scene.c.terms.head_begin = 0;
  Carry carry = empty_carry(scene.c, DType::kF32);
  Tensor largest({.rows = 1, .heads = 2});
  largest.fill(-kInfinity);
  scene.c.max_logit = largest.view();
  forward(provider(), device_, scene.c, scene.in, scene.c.tiles, carry);
  const std::vector<double> first = largest.values();
  EXPECT_LT(lse_error(first, define(scene).max_logit), 1e-6);
  largest.set(0, 1, 0, first[1] + 7);
  forward(provider(), device_, scene.c, scene.in, scene.c.tiles, carry);
  EXPECT_EQ(largest.get(0, 0, 0), first[0]);
  EXPECT_EQ(largest.get(0, 1, 0), static_cast<float>(first[1] + 7));
}

TEST_P(TermEdgesOf, SaturatedSoftcapKeepsItsDerivative) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    Scene scene = plain_tokens(40, 50, dtype, {.softcap = true});
    for (int64_t row = 0; row < 50; ++row) scene.in.k.set(row, 0, 0, 1);
    for (int64_t row = 0; row < 40; ++row) {  // all logits are near 4 times the cap
      for (int64_t head = 0; head < 2; ++head) {
        for (int64_t i = 0; i < 20; ++i) {
          const double small = 0.05 * scene.in.q.get(row, head, i);
          scene.in.q.set(row, head, i, i == 0 ? 10 / scene.c.scale : small);
        }
      }
    }
    check_scene(provider(), scene, device_);
  }
}

TEST_P(TermEdgesOf, ThreadsChangeNoBit) {
  std::mt19937_64 random(41);
  for (int i = 0; i < 40; ++i) {
    Scene scene =
        make_scene(small_case(random), random_terms(random), 3000 + static_cast<uint64_t>(i));
    if (!offered(provider(), device_, scene.c.problem)) continue;
    const DType wide = accumulator(scene.c.problem.dtype);
    const SceneOutcome one = run_scene(provider(), scene, lane_device(1), wide);
    const SceneOutcome many = run_scene(provider(), scene, lane_device(5), wide);
    EXPECT_EQ(one.carry.o.values(), many.carry.o.values()) << scene.text();
    EXPECT_EQ(one.carry.lse.values(), many.carry.lse.values()) << scene.text();
    EXPECT_EQ(one.gradients.dq.values(), many.gradients.dq.values()) << scene.text();
    EXPECT_EQ(one.gradients.dk.values(), many.gradients.dk.values()) << scene.text();
    EXPECT_EQ(one.gradients.dv.values(), many.gradients.dv.values()) << scene.text();
    EXPECT_EQ(one.dbias.values(), many.dbias.values()) << scene.text();
    for (int64_t h = 0; h < scene.c.problem.heads_q; ++h) {
      if (!scene.c.problem.features.max_logit) break;
      const int64_t head = scene.c.terms.head_begin + h;
      EXPECT_EQ(one.max_logit.get(0, head, 0), many.max_logit.get(0, head, 0)) << scene.text();
    }
  }
}

}  // namespace
}  // namespace longspan::testing
