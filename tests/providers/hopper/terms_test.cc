// The score terms of a call as kernels take them.
#include "providers/hopper/terms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace longspan::hopper {
namespace {

TEST(HopperTerms, OfACallWithoutAny) {
  const Terms terms = terms_of({}, 0.5f);
  EXPECT_EQ(terms.slopes, nullptr);
  EXPECT_EQ(terms.cap_log2, 0);
  EXPECT_FALSE(terms.drops);
  EXPECT_EQ(terms.keep_factor, 1);
}

TEST(HopperTerms, CapsInUnitsOfLog2) {
  for (const double cap : {1e-32, 0.05, 50.0, 1e12}) {
    const Terms terms = terms_of({.softcap = cap}, -0.5f);
    EXPECT_GT(terms.cap_log2, 0);
    EXPECT_TRUE(std::isfinite(1 / terms.cap_log2));
    EXPECT_TRUE(std::isfinite(terms.cap_rate));
    EXPECT_EQ(terms.wide_cap, cap > 100);
  }
  const Terms terms = terms_of({.softcap = 50}, -0.5f);
  EXPECT_FLOAT_EQ(terms.cap_log2, static_cast<float>(50 * std::numbers::log2e));
  EXPECT_FLOAT_EQ(terms.cap_rate, 2 * -0.5f / 50);
}

TEST(HopperTerms, SlopesOfTheFirstHead) {
  float slopes[6] = {};
  ScoreTerms given{.head_begin = 2};
  given.slopes.data = slopes;
  given.slopes.stride_head = 1;
  const Terms terms = terms_of(given, 1);
  EXPECT_EQ(terms.slopes, slopes + 2);
  EXPECT_EQ(terms.slope_stride, 1);
  EXPECT_EQ(terms.head_begin, 2u);
}

TEST(HopperTerms, WordsThatDrop) {
  const Dropout dropout{.probability = 0.25, .seed = 7, .offset = 3};
  const Terms terms = terms_of({.dropout = dropout}, 1);
  EXPECT_TRUE(terms.drops);
  EXPECT_EQ(terms.last_dropped, (1u << 30) - 1);
  EXPECT_FLOAT_EQ(terms.keep_factor, 1 / 0.75f);
  EXPECT_EQ(terms.key0, dropout.key()[0]);
  EXPECT_EQ(terms.key1, dropout.key()[1]);
}

}  // namespace
}  // namespace longspan::hopper
