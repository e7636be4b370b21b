// What must not change a bit where sums have a fixed order: threads, repeating, other heads,
// strides, places in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

struct Output {
  std::vector<double> o, lse, dq, dk, dv;
  bool operator==(const Output&) const = default;
};

class Bits : public ::testing::TestWithParam<const Provider*> {
 protected:
  const Provider& provider() const { return *GetParam(); }

  Output run(const Case& c, const Inputs& in, const Device& device) const {
    const Outcome r = testing::run(provider(), c, in, device);
    return {r.carry.o.values(), r.carry.lse.values(), r.gradients.dq.values(),
            r.gradients.dk.values(), r.gradients.dv.values()};
  }
};

INSTANTIATE_TEST_SUITE_P(Lane, Bits, ::testing::ValuesIn(fixed_order_providers()), label);

/// The same numbers in the memory order of `c`.
Inputs moved(const Inputs& in, const Case& c, int64_t lead) {
  const auto move = [&](const Tensor& t) {
    Tensor::Shape shape = t.shape();
    shape.memory = c.memory;
    shape.gap = c.gap;
    shape.lead = lead;
    return t.copy(shape);
  };
  return {move(in.q), move(in.k), move(in.v), move(in.dout)};
}

TEST_P(Bits, ThreadsChangeNothing) {
  std::mt19937_64 random(21);
  const Device devices[] = {lane_device(1), lane_device(2), lane_device(3), lane_device(5)};
  for (int i = 0; i < 40; ++i) {
    const Case c = random_case(random);
    const Inputs in = make_inputs(c, i);
    const Output expected = run(c, in, devices[0]);
    for (const Device& device : devices) {
      ASSERT_EQ(run(c, in, device), expected) << device.threads << " threads: " << c.text();
    }
  }
}

TEST_P(Bits, ManyBlocksOfFewHeadsOnManyThreads) {
  const Device one = lane_device(1);
  const Device many = lane_device(5);
  for (const Band band : {Band{}, Band{-kUnbounded, 0}, Band{-300, 100}}) {
    Case c;
    c.problem = {.heads_q = 2,
                 .heads_kv = 1,
                 .group = 2,
                 .dim_qk = 16,
                 .dim_v = 16,
                 .capacity_q = 1500,
                 .capacity_k = 1700};
    c.scale = 0.25;
    c.tiles = {make_placed(0, 1500, 0, 1700, band)};
    const Inputs in = make_inputs(c, 9);
    const Output expected = run(c, in, one);
    for (int repeat = 0; repeat < 3; ++repeat) ASSERT_EQ(run(c, in, many), expected);
  }
}

TEST_P(Bits, StridesAndPlacesChangeNothing) {
  std::mt19937_64 random(22);
  const Device device = lane_device(2);
  for (int i = 0; i < 40; ++i) {
    Case c = random_case(random);
    const Inputs in = make_inputs(c, i);
    const Output expected = run(c, in, device);
    for (int64_t lead = 0; lead < 6; ++lead) {
      c.memory = lead % 2 == 0 ? Memory::kHeadMajor : Memory::kTokenMajor;
      c.gap = lead / 2;
      ASSERT_EQ(run(c, moved(in, c, lead), device), expected) << c.text() << " lead " << lead;
    }
  }
}

/// Elements of heads [first, first + count) of [rows, heads, dim].
std::vector<double> heads_of(const std::vector<double>& values, int64_t heads, int64_t dim,
                             int64_t first, int64_t count) {
  std::vector<double> result;
  const int64_t rows = static_cast<int64_t>(values.size()) / (heads * dim);
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = values.begin() + (r * heads + first) * dim;
    result.insert(result.end(), begin, begin + count * dim);
  }
  return result;
}

/// A view of heads [first, first + count) as a tensor of its own.
Tensor head_subset(const Tensor& t, int64_t first, int64_t count) {
  Tensor::Shape shape = t.shape();
  shape.heads = count;
  Tensor result(shape);
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t h = 0; h < count; ++h) {
      for (int64_t i = 0; i < shape.dim; ++i) result.set(r, h, i, t.get(r, first + h, i));
    }
  }
  return result;
}

TEST_P(Bits, OtherHeadsChangeNothing) {
  std::mt19937_64 random(23);
  const Device device = lane_device(2);
  for (int i = 0; i < 25; ++i) {
    Case c = random_case(random);
    TileProblem& p = c.problem;
    p.group_offset = 0;
    p.heads_kv = 3;
    p.heads_q = 3 * p.group;
    const Inputs in = make_inputs(c, i);
    const Output all = run(c, in, device);
    const int64_t group = p.group;
    const int64_t first = i % 3;
    p.heads_kv = 1;
    p.heads_q = group;
    const Inputs part{head_subset(in.q, first * group, group), head_subset(in.k, first, 1),
                      head_subset(in.v, first, 1), head_subset(in.dout, first * group, group)};
    const Output one = run(c, part, device);
    ASSERT_EQ(one.o, heads_of(all.o, 3 * group, p.dim_v, first * group, group)) << c.text();
    ASSERT_EQ(one.lse, heads_of(all.lse, 3 * group, 1, first * group, group)) << c.text();
    ASSERT_EQ(one.dq, heads_of(all.dq, 3 * group, p.dim_qk, first * group, group)) << c.text();
    ASSERT_EQ(one.dk, heads_of(all.dk, 3, p.dim_qk, first, 1)) << c.text();
    ASSERT_EQ(one.dv, heads_of(all.dv, 3, p.dim_v, first, 1)) << c.text();
  }
}

/// Ranks that hold whole heads agree with one that holds all: terms go by the problem's head.
TEST_P(Bits, OtherHeadsChangeNoTerm) {
  std::mt19937_64 random(25);
  const Device device = lane_device(2);
  for (int i = 0; i < 25; ++i) {
    Case c = small_case(random);
    TileProblem& p = c.problem;
    p.group_offset = 0;
    p.heads_kv = 3;
    p.heads_q = 3 * p.group;
    const int64_t group = p.group;
    Terms terms = random_terms(random);
    terms.max_logit = false;
    if (device.is_cuda()) terms.score = terms.visible = false;
    // Gradients of a bias per head have the shape of what its ranks hold.
    if (terms.bias == Bias::k1H || terms.bias == Bias::kBH) terms.bias = Bias::k111S;
    Scene scene = make_scene(std::move(c), terms, static_cast<uint64_t>(i));
    const DType wide = accumulator(scene.c.problem.dtype);
    const SceneOutcome all = run_scene(provider(), scene, device, wide);
    const int64_t first = i % 3;
    Inputs& in = scene.in;
    in = {head_subset(in.q, first * group, group), head_subset(in.k, first, 1),
          head_subset(in.v, first, 1), head_subset(in.dout, first * group, group)};
    scene.c.problem.heads_kv = 1;
    scene.c.problem.heads_q = group;
    scene.c.terms.head_begin += first * group;
    const SceneOutcome one = run_scene(provider(), scene, device, wide);
    const int64_t dim_qk = scene.c.problem.dim_qk;
    const int64_t dim_v = scene.c.problem.dim_v;
    ASSERT_EQ(one.carry.o.values(),
              heads_of(all.carry.o.values(), 3 * group, dim_v, first * group, group))
        << scene.text();
    ASSERT_EQ(one.gradients.dq.values(),
              heads_of(all.gradients.dq.values(), 3 * group, dim_qk, first * group, group))
        << scene.text();
    ASSERT_EQ(one.gradients.dk.values(), heads_of(all.gradients.dk.values(), 3, dim_qk, first, 1))
        << scene.text();
    ASSERT_EQ(one.gradients.dv.values(), heads_of(all.gradients.dv.values(), 3, dim_v, first, 1))
        << scene.text();
  }
}

TEST_P(Bits, OneCallEqualsOneCallPerTile) {
  std::mt19937_64 random(24);
  const Device device = lane_device(3);
  for (int i = 0; i < 40; ++i) {
    const Case c = random_case(random);
    const Inputs in = make_inputs(c, i);
    const DType wide = accumulator(c.problem.dtype);
    const Output together = run(c, in, device);
    Carry carry = empty_carry(c, wide);
    for (const PlacedTile& t : c.tiles) forward(provider(), device, c, in, {&t, 1}, carry);
    ASSERT_EQ(carry.o.values(), together.o) << c.text();
    ASSERT_EQ(carry.lse.values(), together.lse) << c.text();
    Gradients g = zero_gradients(c, wide);
    const Tensor delta = make_delta(c, in, carry.o, wide);
    for (const PlacedTile& t : c.tiles) {
      backward(provider(), device, c, in, {&t, 1}, carry.lse, delta, g);
    }
    ASSERT_EQ(g.dq.values(), together.dq) << c.text();
    ASSERT_EQ(g.dk.values(), together.dk) << c.text();
    ASSERT_EQ(g.dv.values(), together.dv) << c.text();
  }
}

}  // namespace
}  // namespace longspan::testing
