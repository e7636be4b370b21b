// The error measures see what they must see.
#include "measures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace longspan::tool {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TensorView view_of(std::vector<double>& values, int64_t dim = 1) {
  return packed_view(values.data(), DType::kF64, static_cast<int64_t>(values.size()) / dim, 1, dim);
}

TEST(Measures, RelativeRmsIsThatOfTheWholeTensor) {
  std::vector<double> reference = {3, -4, 0, 5};
  std::vector<double> result = {3, -4, 1, 5};
  const Measure m = measure(view_of(result, 2), view_of(reference, 2), 1);
  EXPECT_DOUBLE_EQ(m.relative_rms, std::sqrt(1.0 / 50));
  EXPECT_DOUBLE_EQ(m.max_abs, 1);
  EXPECT_DOUBLE_EQ(m.max_rel, 1 / std::sqrt(50.0 / 4));
  EXPECT_EQ(m.nan_count, 0);
}

TEST(Measures, DroppingAnEighthOfTheKeysShows) {
  // What an elementwise bar of 1e-2 would let pass.
  std::vector<double> reference(64), result(64);
  for (size_t i = 0; i < 64; ++i) {
    reference[i] = 0.05 * std::sin(static_cast<double>(i));
    result[i] = i % 8 == 0 ? reference[i] * 0.9 : reference[i];
  }
  const Measure m = measure(view_of(result), view_of(reference), 1);
  EXPECT_LT(m.max_abs, 1e-2);
  EXPECT_GT(m.relative_rms, bars(DType::kBF16, 1).relative_rms);
}

TEST(Measures, SmallReferencesAreHeldAgainstTheFloor) {
  std::vector<double> reference = {1e-9, -1e-9};
  std::vector<double> result = {2e-9, -1e-9};
  EXPECT_NEAR(measure(view_of(result), view_of(reference), 1).relative_rms, 1e-9 / std::sqrt(2.0),
              1e-15);
  EXPECT_NEAR(measure(view_of(result), view_of(reference), 1e-6).relative_rms, 1 / std::sqrt(2.0),
              1e-12);
}

TEST(Measures, EmptyAndZeroTensorsHaveNoError) {
  std::vector<double> none;
  EXPECT_EQ(measure(view_of(none), view_of(none), 1).relative_rms, 0);
  std::vector<double> zeros = {0, 0};
  EXPECT_EQ(measure(view_of(zeros), view_of(zeros), 0).relative_rms, 0);
  std::vector<double> wrong = {0, 1e-30};
  EXPECT_EQ(measure(view_of(wrong), view_of(zeros), 0).relative_rms, kInf);
}

TEST(Measures, NaNIsCountedAndNeverPasses) {
  std::vector<double> reference = {1, 2, 3};
  std::vector<double> result = {1, kNaN, kNaN};
  const Measure m = measure(view_of(result), view_of(reference), 1);
  EXPECT_EQ(m.nan_count, 2);
  EXPECT_EQ(m.first_nan, 1);
  EXPECT_TRUE(std::isnan(m.relative_rms));
  EXPECT_TRUE(std::isnan(m.max_abs));
  EXPECT_FALSE((Check{"o", m.relative_rms, 1, ""}).pass());
  const Measure lse = measure_lse(view_of(result), view_of(reference));
  EXPECT_EQ(lse.nan_count, 2);
  EXPECT_TRUE(std::isnan(lse.max_rel));
}

TEST(Measures, MinusInfinityMustAgreeAndIsLeftOut) {
  std::vector<double> reference = {-kInf, 4, -kInf, 0.5};
  std::vector<double> same = {-kInf, 4, -kInf, 0.5 + 1e-3};
  Measure m = measure_lse(view_of(same), view_of(reference));
  EXPECT_EQ(m.inf_mismatches, 0);
  EXPECT_NEAR(m.max_rel, 1e-3, 1e-12);
  std::vector<double> other = {-kInf, -kInf, 0, 0.5};
  m = measure_lse(view_of(other), view_of(reference));
  EXPECT_EQ(m.inf_mismatches, 2);
  EXPECT_EQ(m.max_rel, 0);
}

TEST(Measures, BarsAreThoseOfTheConventions) {
  EXPECT_EQ(bars(DType::kF64, 1).relative_rms, 1e-12);
  EXPECT_EQ(bars(DType::kF64, 1e9).relative_rms, 1e-12);
  EXPECT_EQ(bars(DType::kF32, 900).relative_rms, 2e-6);
  EXPECT_EQ(bars(DType::kF16, 1).relative_rms, 3e-4);
  EXPECT_EQ(bars(DType::kBF16, 1).relative_rms, 2.5e-3);
  EXPECT_EQ(bars(DType::kBF16, 1).lse, 1e-5);
  EXPECT_EQ(bars(DType::kF32, 5000).relative_rms, 0x1p-11);  // ulp of [4096, 8192)
  EXPECT_FALSE(bars(DType::kF32, 5000).reason.empty());
}

TEST(Measures, PaddingFaultsAreCounted) {
  std::vector<double> values = {1, 0, kNaN, 7};
  EXPECT_EQ(padding_faults(view_of(values), {true, false, false, false}, 0), 2);
  EXPECT_EQ(padding_faults(view_of(values), {true, true, true, true}, 0), 0);
}

}  // namespace
}  // namespace longspan::tool
