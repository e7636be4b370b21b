// Gradients with all score terms are central differences of the loss.
#include <gtest/gtest.h>

#include <cmath>

#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

double loss(Scene& scene, const Device& cpu) {
  Carry carry = empty_carry(scene.c, DType::kF64);
  forward(reference(), cpu, scene.c, scene.in, scene.c.tiles, carry);
  double sum = 0;
  const std::vector<double> o = carry.o.values();
  const std::vector<double> dout = scene.in.dout.values();
  for (size_t i = 0; i < o.size(); ++i) sum += o[i] * dout[i];
  return sum;
}

/// `input` is a tensor of the scene.
void check_differences(Scene& scene, Tensor& input, const Tensor& gradient, const Device& cpu) {
  constexpr double kStep = 1e-5;
  for (int64_t r = 0; r < input.shape().rows; ++r) {
    for (int64_t h = 0; h < input.shape().heads; ++h) {
      for (int64_t i = 0; i < input.shape().dim; ++i) {
        const double value = input.get(r, h, i);
        input.set(r, h, i, value + kStep);
        const double above = loss(scene, cpu);
        input.set(r, h, i, value - kStep);
        const double below = loss(scene, cpu);
        input.set(r, h, i, value);
        ASSERT_NEAR(gradient.get(r, h, i), (above - below) / (2 * kStep), 1e-8) << scene.text();
      }
    }
  }
}

Case two_tiles(int64_t group_offset, Band band) {
  Case c;
  c.problem = {.dtype = DType::kF64,
               .heads_q = 3,
               .heads_kv = 2,
               .group = 2,
               .group_offset = group_offset,
               .dim_qk = 3,
               .dim_v = 2,
               .capacity_q = 9,
               .capacity_k = 8};
  c.scale = 0.7;
  c.tiles = {make_placed(0, 5, 0, 6, band), make_placed(4, 5, 2, 6, {-kUnbounded, 1})};
  return c;
}

TEST(TermGradients, AreFiniteDifferences) {
  const Device cpu = device(1);
  const Band bands[] = {{-kUnbounded, 0}, {}, {-2, 1}};
  for (const Bias bias : {Bias::kNone, Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S}) {
    const int which = static_cast<int>(bias);
    const Terms terms{.softcap = true,
                      .alibi = true,
                      .bias = bias,
                      .dropout = true,
                      .score = true,
                      .visible = which % 2 == 0};
    Scene scene = make_scene(two_tiles(which % 2, bands[which % 3]), terms,
                             50 + static_cast<uint64_t>(which));
    const SceneOutcome r = run_scene(reference(), scene, cpu, DType::kF64);
    check_differences(scene, scene.in.q, r.gradients.dq, cpu);
    check_differences(scene, scene.in.k, r.gradients.dk, cpu);
    check_differences(scene, scene.in.v, r.gradients.dv, cpu);
    if (bias != Bias::kNone) check_differences(scene, scene.bias, r.dbias, cpu);
    EXPECT_GT(relative_rms(r.gradients.dq.values(), std::vector<double>(81)), 1e-3);
  }
}

}  // namespace
}  // namespace longspan::testing
