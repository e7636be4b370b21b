// Mask, window, prefix and chunks as disjoint tiles, against their wording pair by pair.
#include "testkit/visible.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "longspan/problem.h"
#include "testkit/random_problem.h"

namespace longspan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testkit::Random;
using testkit::visible;

Problem with_random_mask(Random& random) {
  Problem p = testkit::random_problem(random, {.sequences = 3, .length = 25});
  p.window_left = random.chance(0.5) ? -1 : random.between(0, 30);
  p.window_right = random.chance(0.5) ? -1 : random.between(0, 30);
  p.chunk = random.chance(0.5) ? 0 : random.between(1, 30);
  p.prefix.clear();
  if (random.chance(0.5)) {
    for (size_t i = 0; i < p.lengths.sequences.size(); ++i) {
      p.prefix.push_back(random.between(0, 30));
    }
  }
  return p;
}

/// How often each pair of a sequence is in a tile that `q` may see.
std::vector<int> counted(const Problem& p, size_t sequence, Interval q) {
  const Sequence& s = p.lengths.sequences[sequence];
  std::vector<int> counts(static_cast<size_t>(s.q_length * s.k_length), 0);
  const auto index = static_cast<int64_t>(sequence);
  const Range numbers = p.mask_tiles(index, q);
  for (int64_t number = numbers.first; number < numbers.last; ++number) {
    const MaskTile tile = p.mask_tile(index, number);
    for (int64_t i = tile.q.begin; i < tile.q.end; ++i) {
      for (int64_t j = tile.k.begin; j < tile.k.end; ++j) {
        if (tile.band.sees(i, j)) ++counts[static_cast<size_t>(i * s.k_length + j)];
      }
    }
  }
  return counts;
}

TEST(Visible, TilesHoldEveryVisiblePairOnce) {
  Random random(21);
  for (int trial = 0; trial < 2000; ++trial) {
    const Problem p = with_random_mask(random);
    for (size_t s = 0; s < p.lengths.sequences.size(); ++s) {
      const Sequence& sequence = p.lengths.sequences[s];
      const int64_t first = random.between(0, sequence.q_length);
      const Interval q{first, random.between(first, sequence.q_length), 1};
      const std::vector<int> counts = counted(p, s, q);
      int64_t pairs = 0;
      for (int64_t i = 0; i < sequence.q_length; ++i) {
        for (int64_t k = 0; k < sequence.k_length; ++k) {
          const int count = counts[static_cast<size_t>(i * sequence.k_length + k)];
          const bool seen = visible(p, static_cast<int64_t>(s), i, k);
          if (i < q.end && seen) ++pairs;
          const bool asked = i >= q.begin && i < q.end;
          ASSERT_GE(count, asked && seen ? 1 : 0) << p.text() << i << "," << k;
          ASSERT_LE(count, seen ? 1 : 0) << p.text() << i << "," << k;
        }
      }
      ASSERT_EQ(p.visible_pairs(static_cast<int64_t>(s), q.end), pairs) << p.text();
    }
  }
}

TEST(Visible, BetweenKeepsTheStride) {
  EXPECT_EQ(between({3, 30, 3}, 7, 20), (Interval{9, 21, 3}));
  EXPECT_EQ(between({3, 30, 3}, 0, 4), (Interval{3, 6, 3}));
  EXPECT_EQ(between({3, 30, 3}, 28, 40).size(), 0);
  EXPECT_EQ(between({3, 30, 3}, 10, 11).size(), 0);
  EXPECT_EQ(between({5, 9, 1}, 6, 8), (Interval{6, 8, 1}));
}

TEST(Visible, HugeSequencesAreCountedInClosedForm) {
  const Problem p =
      *parse_problem("dtype=bf16 heads=1/1 dim=1 lengths=2147483648 mask=causal window=1023,0");
  const int64_t n = int64_t{1} << 31;
  EXPECT_EQ(p.visible_pairs(), n * 1024 - 1024 * 1023 / 2);
}

TEST(Alibi, SlopesOfThePaper) {
  EXPECT_THAT(default_alibi_slopes(8),
              ElementsAre(0x1p-1, 0x1p-2, 0x1p-3, 0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7, 0x1p-8));
  EXPECT_THAT(default_alibi_slopes(1), ElementsAre(0x1p-8));
  // No power of two: four of four heads, then every other one of eight.
  EXPECT_THAT(default_alibi_slopes(6), ElementsAre(0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3));
}

TEST(Bias, ExtentsAreThoseOfTheLongestSequences) {
  const auto shape = [](const char* bias) {
    return parse_problem(std::string("dtype=f32 heads=6/2 dim=8 lengths=3,9 kv_lengths=12,4 "
                                     "kv_padded=14,4 bias=") +
                         bias)
        ->bias_shape();
  };
  EXPECT_THAT(shape("none"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(shape("1,1"), ElementsAre(1, 1, 9, 14));
  EXPECT_THAT(shape("b,1"), ElementsAre(2, 1, 9, 14));
  EXPECT_THAT(shape("1,h"), ElementsAre(1, 6, 9, 14));
  EXPECT_THAT(shape("b,h"), ElementsAre(2, 6, 9, 14));
  EXPECT_THAT(shape("1,1,1,s"), ElementsAre(1, 1, 1, 14));
}

TEST(Documents, LengthsOfIds) {
  const std::vector<int64_t> ids = {7, 7, 7, 2, 9, 9};
  EXPECT_THAT(*lengths_from_ids(ids), ElementsAre(3, 1, 2));
  EXPECT_TRUE(lengths_from_ids({})->empty());
  const std::vector<int64_t> mixed = {1, 1, 2, 1};
  const auto refused = lengths_from_ids(mixed);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("document id 1 comes back at token 3"));
}

TEST(ProblemErrors, ScoresAndMasksByHand) {
  const Problem plain = *parse_problem("dtype=f32 heads=2/1 dim=8 lengths=5,4");
  const auto refusal = [&](auto&& edit) {
    Problem p = plain;
    edit(p);
    const auto result = validated(p);
    return result.ok() ? std::string("accepted") : result.error().message;
  };
  EXPECT_THAT(refusal([](Problem& p) { p.softcap = -1; }), HasSubstr("softcap=-1"));
  EXPECT_THAT(refusal([](Problem& p) { p.softcap = std::nan(""); }), HasSubstr("softcap=nan"));
  EXPECT_THAT(refusal([](Problem& p) { p.dropout = 1; }), HasSubstr("dropout=1"));
  EXPECT_THAT(refusal([](Problem& p) { p.window_left = -2; }), HasSubstr("window: left is -2"));
  EXPECT_THAT(refusal([](Problem& p) { p.chunk = -1; }), HasSubstr("chunk=-1"));
  EXPECT_THAT(refusal([](Problem& p) { p.prefix = {1}; }), HasSubstr("prefix has 1 entries"));
  EXPECT_THAT(refusal([](Problem& p) { p.prefix = {1, -4}; }), HasSubstr("sequence 1 has -4"));
  EXPECT_THAT(refusal([](Problem& p) { p.page = 3; }),
              HasSubstr("sequence 0 has extent 5, no multiple of page=3"));
  EXPECT_EQ(refusal([](Problem& p) { p.prefix = {0, 0}; }), "accepted");
}

}  // namespace
}  // namespace longspan
