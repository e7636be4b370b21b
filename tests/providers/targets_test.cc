// cpu/tiled on every instruction set that this machine has and the library was compiled for.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>

#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

/// Lets the library choose among `targets` alone.
void restrict_to(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

class Targets : public ::testing::Test {
 protected:
  ~Targets() override { restrict_to(0); }  // 0: all that the machine has

  /// Calls body for one target after the other, the widest first.
  template <class Body>
  void each(Body&& body) {
    restrict_to(0);
    const int64_t all = hwy::SupportedTargets() & HWY_TARGETS;
    ASSERT_NE(all, 0);
    for (int64_t left = all; left != 0 && !HasFailure(); left &= left - 1) {
      const int64_t target = left & -left;
      SCOPED_TRACE(hwy::TargetName(target));
      restrict_to(target);
      body();
    }
  }
  const Device cpu_ = device(2);
};

TEST_F(Targets, GiveTheDefinition) {
  each([&] {
    std::mt19937_64 random(51);
    for (uint64_t i = 0; i < 40; ++i) {
      const Terms terms = i % 2 == 0 ? Terms{} : random_terms(random);
      Scene scene = make_scene(small_case(random), terms, i);
      check_scene(tiled(), scene, cpu_);
    }
  });
}

TEST_F(Targets, ReadSpecialNumbersOfEveryType) {
  each([&] {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
      Case c = one_tile(20, 20, {}, dtype);
      Scene scene = make_scene(std::move(c), {.bias = Bias::k11}, 1);
      for (int64_t q = 0; q < scene.bias.shape().rows; ++q) {
        scene.bias.set(q, 0, q % scene.bias.shape().dim, -std::numeric_limits<double>::infinity());
        scene.in.q.set(q % 20, 0, 3, 0x1p-16);  // subnormal in f16
      }
      check_scene(tiled(), scene, cpu_);
      scene.in.v.set(4, 0, 5, std::numeric_limits<double>::quiet_NaN());
      const SceneOutcome r = run_scene(tiled(), scene, cpu_, accumulator(dtype));
      EXPECT_TRUE(std::isnan(r.carry.o.get(7, 0, 5)));
      EXPECT_FALSE(std::isnan(r.carry.o.get(7, 0, 6)));
    }
  });
}

}  // namespace
}  // namespace longspan::testing
