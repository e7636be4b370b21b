// Conversions of 16-bit floating types: every pattern, and every rounding boundary.
#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace longspan {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);

  uint16_t infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
};

constexpr Format kF16{5, 10, f16_to_float, float_to_f16};
constexpr Format kBF16{8, 7, bf16_to_float, float_to_bf16};

/// The value of a pattern without sign, by the definition of the format.
double value_of(const Format& format, int magnitude) {
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return std::ldexp((1 << format.mantissa_bits) + mantissa, exponent - bias - format.mantissa_bits);
}

/// Values of all finite patterns without sign; behind them what would be the next one, to which
/// rounding overflows: infinity.
std::vector<double> all_values(const Format& format) {
  std::vector<double> values;
  for (int magnitude = 0; magnitude <= format.infinity(); ++magnitude) {
    values.push_back(value_of(format, magnitude));
  }
  return values;
}

/// Nearest pattern, ties to the even one.
uint16_t nearest(const std::vector<double>& values, float value) {
  const double magnitude = std::abs(static_cast<double>(value));
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  if (above == values.end()) return static_cast<uint16_t>(sign | (values.size() - 1));
  auto index = static_cast<size_t>(above - values.begin());
  if (*above != magnitude) {
    const double down = magnitude - values[index - 1];
    const double up = *above - magnitude;
    if (down < up || (down == up && index % 2 == 1)) --index;
  }
  return static_cast<uint16_t>(sign | index);
}

class Half : public testing::TestWithParam<Format> {};

TEST_P(Half, EveryPatternWidensExactly) {
  const Format format = GetParam();
  for (int bits = 0; bits < 0x10000; ++bits) {
    const int magnitude = bits & 0x7fff;
    const float value = format.widen(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    if (magnitude > format.infinity()) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if (magnitude == format.infinity()) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(std::abs(static_cast<double>(value)), value_of(format, magnitude)) << bits;
    }
  }
}

TEST_P(Half, EveryPatternSurvivesTheRoundTrip) {
  const Format format = GetParam();
  for (int bits = 0; bits < 0x10000; ++bits) {
    const uint16_t back = format.narrow(format.widen(static_cast<uint16_t>(bits)));
    if ((bits & 0x7fff) <= format.infinity()) {
      ASSERT_EQ(back, bits);
    } else {
      ASSERT_GT(back & 0x7fff, format.infinity()) << "a NaN stays one: " << bits;
      ASSERT_EQ(back & 0x8000, bits & 0x8000);
    }
  }
}

TEST_P(Half, EveryMidpointRoundsToEvenAndItsNeighboursToTheNearest) {
  const Format format = GetParam();
  const std::vector<double> values = all_values(format);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = (values[i] + values[i + 1]) / 2;
    const auto point = static_cast<float>(middle);
    if (static_cast<double>(point) != middle) continue;  // beyond the largest float
    const size_t even = i % 2 == 0 ? i : i + 1;
    ASSERT_EQ(format.narrow(point), even);
    ASSERT_EQ(format.narrow(-point), even | 0x8000);
    ASSERT_EQ(format.narrow(std::nextafter(point, 0.0f)), i);
    ASSERT_EQ(format.narrow(std::nextafter(point, kInfinity)), i + 1);
  }
}

TEST_P(Half, RandomFloatsRoundToNearestEven) {
  const Format format = GetParam();
  const std::vector<double> values = all_values(format);
  std::mt19937 random(21);
  std::normal_distribution<float> normal(0, 100);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value =
        i % 2 ? normal(random) : std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) {
      ASSERT_GT(format.narrow(value) & 0x7fff, format.infinity());
      continue;
    }
    ASSERT_EQ(format.narrow(value), nearest(values, value)) << value;
  }
}

TEST_P(Half, LargeValuesBecomeInfinite) {
  const Format format = GetParam();
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(format.narrow(largest), format.infinity());
  EXPECT_EQ(format.narrow(-largest), format.infinity() | 0x8000);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::infinity()), format.infinity());
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(format.narrow(-0.0f), 0x8000);
  const float nan_with_low_bits = std::bit_cast<float>(0x7f800001u);
  EXPECT_GT(format.narrow(nan_with_low_bits), format.infinity());
}

INSTANTIATE_TEST_SUITE_P(Formats, Half, testing::Values(kF16, kBF16), [](const auto& format) {
  return format.param.mantissa_bits == 10 ? "f16" : "bf16";
});

}  // namespace
}  // namespace longspan
