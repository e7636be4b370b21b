// Providers against the definition: each score term alone, all of them together.
#include <gtest/gtest.h>

#include "providers/lane.h"
#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

class ScoreTermsOf : public ::testing::TestWithParam<const Provider*> {
 protected:
  void check(std::mt19937_64& random, const Terms& terms) {
    Scene scene = make_scene(small_case(random), terms, random());
    check_scene(*GetParam(), scene, device_);
  }
  void check(const Terms& terms, int scenes, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < scenes && !HasFailure(); ++i) check(random, terms);
  }
  const Device device_ = lane_device(2);
};

INSTANTIATE_TEST_SUITE_P(Lane, ScoreTermsOf, ::testing::ValuesIn(lane_providers()), label);

TEST_P(ScoreTermsOf, None) { check({}, 20, 1); }
TEST_P(ScoreTermsOf, Softcap) { check({.softcap = true}, 20, 100); }
TEST_P(ScoreTermsOf, Alibi) { check({.alibi = true}, 20, 200); }
TEST_P(ScoreTermsOf, Dropout) { check({.dropout = true}, 20, 300); }
TEST_P(ScoreTermsOf, Score) { check({.score = true}, 20, 400); }
TEST_P(ScoreTermsOf, Visible) { check({.visible = true}, 20, 500); }
TEST_P(ScoreTermsOf, MaxLogit) { check({.max_logit = true}, 20, 600); }

TEST_P(ScoreTermsOf, EveryBias) {
  for (const Bias bias : {Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S}) {
    check({.bias = bias}, 15, 700 + static_cast<uint64_t>(bias));
  }
}

TEST_P(ScoreTermsOf, AllTogether) {
  for (const Bias bias : {Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S}) {
    check({.softcap = true,
           .alibi = true,
           .bias = bias,
           .dropout = true,
           .score = true,
           .visible = true,
           .max_logit = true},
          10, 800 + static_cast<uint64_t>(bias));
  }
}

TEST_P(ScoreTermsOf, RandomCombinations) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 150 && !HasFailure(); ++i) check(random, random_terms(random));
}

}  // namespace
}  // namespace longspan::testing
