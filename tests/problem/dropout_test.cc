// The generator against the known answers of its authors, and the statistics of dropped pairs.
#include "longspan/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"

namespace longspan {
namespace {

using Words = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

TEST(Philox, KnownAnswers) {  // Random123, philox4x32-10
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, KeyIsSeedAndOffset) {
  EXPECT_EQ((Dropout{0.5, 0x0123456789abcdef, 0}.key()), (Key{0x89abcdef, 0x01234567}));
  EXPECT_EQ((Dropout{0.5, 1, 1}.key()), (Key{0x7f4a7c16, 0x9e3779b9}));
  EXPECT_EQ((Dropout{0.5, 5, 2}.key()), (Key{0xfe94f82f, 0x3c6ef372}));
}

TEST(Dropout, ThresholdIsTheProbability) {
  EXPECT_EQ((Dropout{0, 0, 0}.threshold()), 0u);
  EXPECT_EQ((Dropout{0.25, 0, 0}.threshold()), uint64_t{1} << 30);
  EXPECT_EQ((Dropout{0x1p-40, 0, 0}.threshold()), 1u);  // words below 2^-8: word 0
  EXPECT_EQ((Dropout{1 - 0x1p-53, 0, 0}.threshold()), uint64_t{1} << 32);
  EXPECT_EQ((Dropout{0.75, 0, 0}.keep_factor()), 4.0);
}

/// The counter's words stand in the order of ScoreIndex; the first word of the result decides.
TEST(Dropout, DropsWhereTheFirstWordIsBelowTheThreshold) {
  const Dropout half{0.5, 42, 7};
  for (const ScoreIndex at :
       {ScoreIndex{0, 0, 0, 0}, ScoreIndex{1, 2, 3, 4}, ScoreIndex{4, 3, 2, 1},
        ScoreIndex{0, 31, 1 << 20, 70000}, ScoreIndex{9, 8, 7, 1 << 30}}) {
    const Words counter{static_cast<uint32_t>(at.sequence), static_cast<uint32_t>(at.head),
                        static_cast<uint32_t>(at.q), static_cast<uint32_t>(at.k)};
    EXPECT_EQ(half.keeps(at), philox4x32(counter, half.key())[0] >= 0x80000000u);
  }
}

TEST(Dropout, WorkedExampleOfTheDocs) {
  const Dropout dropout{0.1, 1234, 1};
  EXPECT_EQ(dropout.key(), (Key{0x7f4a80e7, 0x9e3779b9}));
  EXPECT_EQ(dropout.threshold(), 429496730u);
  EXPECT_EQ(philox4x32({0, 2, 5, 16}, dropout.key())[0], 0x690a1380u);
  EXPECT_EQ(philox4x32({0, 2, 5, 17}, dropout.key())[0], 0x0b614ecau);
  EXPECT_TRUE(dropout.keeps({0, 2, 5, 16}));
  EXPECT_FALSE(dropout.keeps({0, 2, 5, 17}));
}

TEST(Dropout, BoundariesAreExact) {
  // The smallest and the largest probability at which a pair changes sides.
  const ScoreIndex at{0, 0, 0, 0};
  const double word = philox4x32({0, 0, 0, 0}, {0, 0})[0];
  EXPECT_TRUE((Dropout{word / 0x1p32, 0, 0}.keeps(at)));
  EXPECT_FALSE((Dropout{(word + 1) / 0x1p32, 0, 0}.keeps(at)));
  EXPECT_TRUE((Dropout{0, 0, 0}.keeps(at)));
}

constexpr int64_t kSide = 512;
constexpr double kPairs = static_cast<double>(kSide * kSide);

/// Pairs of two masks of one head that are dropped in both; in the first alone when equal.
template <class First, class Second>
double dropped_in_both(First&& first, Second&& second) {
  double count = 0;
  for (int64_t q = 0; q < kSide; ++q) {
    for (int64_t k = 0; k < kSide; ++k) count += !first(q, k) && !second(q, k) ? 1 : 0;
  }
  return count;
}

/// Within 4.5 standard deviations of a binomial count, which one honest run in 1e5 leaves.
void expect_share(double count, double probability) {
  const double deviation = std::sqrt(kPairs * probability * (1 - probability));
  EXPECT_NEAR(count, kPairs * probability, 4.5 * deviation);
}

TEST(Dropout, SharesAndIndependence) {
  for (const double p : {0.05, 0.1, 0.5, 0.9}) {
    const Dropout dropout{p, 99, 3};
    const auto mask = [&](int64_t sequence, int64_t head) {
      return [&, sequence, head](int64_t q, int64_t k) {
        return dropout.keeps({sequence, head, q, k});
      };
    };
    expect_share(dropped_in_both(mask(0, 0), mask(0, 0)), p);
    expect_share(dropped_in_both(mask(2, 5), mask(2, 5)), p);
    expect_share(dropped_in_both(mask(0, 0), mask(0, 1)), p * p);
    expect_share(dropped_in_both(mask(0, 1), mask(1, 0)), p * p);
    const auto next = [&](int64_t q, int64_t k) { return dropout.keeps({0, 0, q, k + 1}); };
    expect_share(dropped_in_both(mask(0, 0), next), p * p);
    const auto below = [&](int64_t q, int64_t k) { return dropout.keeps({0, 0, q + 1, k}); };
    expect_share(dropped_in_both(mask(0, 0), below), p * p);
    const Dropout seeded{p, 100, 3};
    const auto other = [&](int64_t q, int64_t k) { return seeded.keeps({0, 0, q, k}); };
    expect_share(dropped_in_both(mask(0, 0), other), p * p);
    const Dropout later{p, 99, 4};
    const auto replay = [&](int64_t q, int64_t k) { return later.keeps({0, 0, q, k}); };
    expect_share(dropped_in_both(mask(0, 0), replay), p * p);
  }
}

}  // namespace
}  // namespace longspan
