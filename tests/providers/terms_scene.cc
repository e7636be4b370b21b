#include "providers/terms_scene.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kSequences = 3;

std::unique_ptr<Modification> make_modification(const Terms& terms) {
  auto result = std::make_unique<Modification>();
  result->key = "scene";
  if (terms.visible) {
    result->visible = [](const ScoreIndex& at) {
      return (7 * at.q + 5 * at.k + 3 * at.head + at.sequence) % 4 != 1;
    };
  }
  if (!terms.score) return result;
  result->score = [](double score, const ScoreIndex& at) {
    if ((at.q + 2 * at.k) % 13 == 5) return -kInfinity;
    const int64_t place = (at.q + 3 * at.k + at.head + at.sequence) % 5;
    return score + 0.3 * std::sin(score) - 0.2 * static_cast<double>(place);
  };
  result->derivative = [](double score, const ScoreIndex& at) {
    // Nothing may come of it where the score is -inf.
    return (at.q + 2 * at.k) % 13 == 5 ? NAN : 1 + 0.3 * std::cos(score);
  };
  return result;
}

void give_tokens(std::vector<PlacedTile>& tiles, std::mt19937_64& random) {
  for (PlacedTile& t : tiles) {
    const auto tokens = [&](int64_t count) {
      const int64_t begin = pick(random, 0, 9);
      const int64_t stride = pick(random, 1, 3);
      return Interval{begin, begin + count * stride, stride};
    };
    t.tile.sequence = static_cast<int32_t>(pick(random, 0, kSequences - 1));
    t.tile.q = tokens(t.tile.q.size());
    t.tile.k = tokens(t.tile.k.size());
    t.shift = pick(random, -6, 6);
  }
}

}  // namespace

std::string Terms::text() const {
  return fmt::format("softcap {} alibi {} bias {} dropout {} score {} visible {} max_logit {}: ",
                     softcap, alibi, longspan::name(bias), dropout, score, visible, max_logit);
}

Terms random_terms(std::mt19937_64& random) {
  const auto coin = [&] { return pick(random, 0, 1) == 1; };
  return {.softcap = coin(),
          .alibi = coin(),
          .bias = static_cast<Bias>(pick(random, 0, 5)),
          .dropout = coin(),
          .score = coin(),
          .visible = coin(),
          .max_logit = coin()};
}

Tensor make_bias(const Scene& scene, DType dtype) {
  const Bias kind = scene.c.problem.features.bias;
  int64_t queries = 1;
  int64_t keys = 1;
  for (const PlacedTile& t : scene.c.tiles) {
    queries = std::max(queries, t.tile.q.end);
    keys = std::max(keys, t.tile.k.end);
  }
  const int64_t batch = kind == Bias::kB1 || kind == Bias::kBH ? kSequences : 1;
  const int64_t heads = scene.c.terms.head_begin + scene.c.problem.heads_q + 1;
  if (kind == Bias::k111S) queries = 1;
  return Tensor({.dtype = dtype,
                 .rows = batch * queries,
                 .heads = kind == Bias::k1H || kind == Bias::kBH ? heads : 1,
                 .dim = keys,
                 .memory = scene.c.memory,
                 .batch = batch,
                 .gap = scene.c.gap});
}

Scene make_scene(Case c, const Terms& terms, uint64_t seed) {
  std::mt19937_64 random(seed);
  give_tokens(c.tiles, random);
  return add_terms(std::move(c), terms, seed);
}

Scene add_terms(Case c, const Terms& terms, uint64_t seed) {
  std::mt19937_64 random(seed);
  Features& features = c.problem.features;
  features = {.softcap = terms.softcap,
              .alibi = terms.alibi,
              .bias = terms.bias,
              .dropout = terms.dropout,
              .max_logit = terms.max_logit};
  const int64_t head_begin = pick(random, 0, 3);
  const int64_t heads = head_begin + c.problem.heads_q + pick(random, 0, 2);
  Inputs in = make_inputs(c, seed);
  Scene scene{.c = std::move(c),
              .in = std::move(in),
              .slopes = Tensor({.dtype = accumulator(c.problem.dtype), .rows = 1, .heads = heads}),
              .bias = Tensor({}),
              .modification = nullptr,
              .terms = terms.text()};
  ScoreTerms& views = scene.c.terms;
  views.head_begin = head_begin;
  if (terms.softcap) views.softcap = 2.5;
  for (int64_t head = 0; head < heads; ++head) {
    scene.slopes.set(0, head, 0, 0.03 * static_cast<double>(head + 1));
  }
  if (terms.alibi) views.slopes = scene.slopes.view();
  if (terms.dropout) views.dropout = {0.3, seed * 0x123456789u, 5};
  if (terms.bias != Bias::kNone) {
    scene.bias = make_bias(scene, scene.c.problem.dtype);
    scene.bias.fill_normal(random);
    views.bias = scene.bias.view();
  }
  if (!terms.score && !terms.visible) return scene;
  scene.modification = make_modification(terms);
  scene.c.problem.features.modification = scene.modification->key;
  views.modification = scene.modification.get();
  return scene;
}

void set_slopes_of_far_tokens(Scene& scene, int64_t far) {
  for (int64_t h = 0; h < scene.slopes.shape().heads; ++h) {
    scene.slopes.set(0, h, 0, h % 2 == 0 ? 0.01 : -0.02);
  }
  Tile& tile = scene.c.tiles[0].tile;
  tile.q = {far, far + 300, 1};
  tile.k = {far, far + 300, 1};
}

SceneOutcome run_scene(const Provider& provider, Scene& scene, const Device& device, DType wide) {
  Case& c = scene.c;
  SceneOutcome r{empty_carry(c, wide), zero_gradients(c, wide),
                 Tensor({.dtype = wide, .rows = 1, .heads = scene.slopes.shape().heads}),
                 make_bias(scene, wide)};
  for (int64_t head = 0; head < c.problem.heads_q; ++head) {
    r.max_logit.set(0, c.terms.head_begin + head, 0, -kInfinity);
  }
  r.dbias.fill(0);
  if (c.problem.features.max_logit) c.max_logit = r.max_logit.view();
  if (c.problem.features.bias != Bias::kNone) c.dbias = r.dbias.view();
  const std::span<const PlacedTile> tiles = c.tiles;
  const size_t half = tiles.size() / 2;
  forward(provider, device, c, scene.in, tiles.first(half), r.carry);
  forward(provider, device, c, scene.in, tiles.subspan(half), r.carry);
  const Tensor delta = make_delta(c, scene.in, r.carry.o, wide);
  backward(provider, device, c, scene.in, tiles.subspan(half), r.carry.lse, delta, r.gradients);
  backward(provider, device, c, scene.in, tiles.first(half), r.carry.lse, delta, r.gradients);
  c.max_logit = {};
  c.dbias = {};
  return r;
}

namespace {

double rms(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

/// The bar of a gradient that cancels, in bars: rounding delta, as callers do, costs up to a tenth
/// of one of the magnitudes.
double amplification(const std::vector<double>& gradient, const std::vector<double>& magnitudes) {
  const double size = rms(gradient);
  return size < 1e-6 ? 1 : std::max(1.0, 0.1 * rms(magnitudes) / size);
}

void check_max_logit(const Scene& scene, const Tensor& values, const Definition& expected,
                     double bar) {
  const int64_t first = scene.c.terms.head_begin;
  const int64_t heads = scene.c.problem.heads_q;
  std::vector<double> own;
  for (int64_t head = 0; head < values.shape().heads; ++head) {
    const double value = values.get(0, head, 0);
    const bool held = head >= first && head < first + heads;
    EXPECT_EQ(std::isnan(value), !held) << "head " << head << " of " << scene.text();
    if (held) own.push_back(value);
  }
  EXPECT_LT(lse_error(own, expected.max_logit), bar) << scene.text();
}

}  // namespace

void check_scene(const Provider& provider, Scene& scene, const Device& device) {
  if (!offered(provider, device, scene.c.problem)) return;
  const Definition expected = define(scene);
  const DType dtype = scene.c.problem.dtype;
  const DType wide = is_oracle(provider) ? DType::kF64 : accumulator(dtype);
  const SceneOutcome r = run_scene(provider, scene, device, wide);
  const Bars bar = bars(provider, dtype);
  const auto check = [&](const char* what, const Tensor& t, const std::vector<double>& values,
                         const std::vector<double>& magnitudes = {}) {
    const double limit = bar.tensors * amplification(values, magnitudes);
    EXPECT_LT(relative_rms(t.values(), values), limit) << what << ": " << scene.text();
  };
  check("o", r.carry.o, expected.o);
  EXPECT_LT(lse_error(r.carry.lse.values(), expected.lse), bar.lse) << scene.text();
  check("dq", r.gradients.dq, expected.dq, expected.magnitudes.dq);
  check("dk", r.gradients.dk, expected.dk, expected.magnitudes.dk);
  check("dv", r.gradients.dv, expected.dv);
  if (scene.c.problem.features.bias != Bias::kNone) {
    check("dbias", r.dbias, expected.dbias, expected.magnitudes.dbias);
  }
  if (scene.c.problem.features.max_logit) check_max_logit(scene, r.max_logit, expected, bar.lse);
}

}  // namespace longspan::testing
