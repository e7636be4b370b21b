#include "numbers.h"

#include <gtest/gtest.h>

#include <limits>

namespace longspan::tool {
namespace {

TEST(Numbers, EveryF16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double value = f16_value(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_value(f16_bits(value))));
    } else {
      ASSERT_EQ(f16_bits(value), bits) << value;
    }
  }
}

TEST(Numbers, EveryBf16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double value = bf16_value(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_value(bf16_bits(value))));
    } else {
      ASSERT_EQ(bf16_bits(value), bits) << value;
    }
  }
}

TEST(Numbers, TiesGoToTheEvenNeighbour) {
  EXPECT_EQ(f16_value(f16_bits(1 + 0x1p-11)), 1);
  EXPECT_EQ(f16_value(f16_bits(1 + 0x3p-11)), 1 + 0x1p-9);
  EXPECT_EQ(bf16_value(bf16_bits(1 + 0x1p-8)), 1);
  EXPECT_EQ(bf16_value(bf16_bits(1 + 0x3p-8)), 1 + 0x1p-6);
}

TEST(Numbers, NothingIsRoundedTwice) {
  // Through float the small part is lost, and the tie that remains goes the other way.
  EXPECT_EQ(f16_value(f16_bits(1 + 0x1p-11 + 0x1p-40)), 1 + 0x1p-10);
  EXPECT_EQ(bf16_value(bf16_bits(1 + 0x1p-8 + 0x1p-40)), 1 + 0x1p-7);
}

TEST(Numbers, RangeEnds) {
  EXPECT_EQ(f16_bits(65519.99), 0x7bff);
  EXPECT_EQ(f16_bits(65520), 0x7c00);
  EXPECT_EQ(f16_bits(-1e300), 0xfc00);
  EXPECT_EQ(f16_bits(0x1p-25), 0);    // a tie with zero
  EXPECT_EQ(f16_bits(0x1.8p-25), 1);  // the smallest subnormal
  EXPECT_EQ(f16_bits(-0.0), 0x8000);
  EXPECT_EQ(f16_bits(0x1.ffep-15 + 0x1p-30), 0x0400);  // rounds up into the normals
  EXPECT_EQ(bf16_bits(3.4e38), 0x7f80);                // beyond the largest, rounds to inf
  EXPECT_EQ(bf16_bits(0x1p-133), 1);
}

}  // namespace
}  // namespace longspan::tool
