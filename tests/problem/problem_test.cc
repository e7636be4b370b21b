// Problems filled in by hand, bands, counted work and cumulative lengths.
#include "longspan/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "testkit/random_problem.h"

namespace longspan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Problem parsed(std::string_view text) {
  Result<Problem> problem = parse_problem(text);
  if (!problem.ok()) throw std::logic_error(problem.error().text());
  return std::move(problem).value();
}

TEST(Problem, BandResolvesTheAlignmentOfEachSequence) {
  const Problem none = parsed("dtype=f32 heads=1/1 dim=4 lengths=3,7 kv_lengths=5,2");
  EXPECT_EQ(none.band(none.lengths.sequences[0]), Band{});
  const Problem left = parsed("dtype=f32 heads=1/1 dim=4 lengths=3,7 kv_lengths=5,2 mask=causal");
  EXPECT_EQ(left.band(left.lengths.sequences[1]), (Band{-kUnbounded, 0}));
  const Problem right =
      parsed("dtype=f32 heads=1/1 dim=4 lengths=3,7 kv_lengths=5,2 mask=bottom_right");
  EXPECT_EQ(right.band(right.lengths.sequences[0]), (Band{-kUnbounded, 2}));
  EXPECT_EQ(right.band(right.lengths.sequences[1]), (Band{-kUnbounded, -5}));
}

TEST(Problem, CountsVisiblePairsAndWork) {
  // Bottom right: 3 x 5 sees 3 + 4 + 5 keys; of 7 x 2 only the last two rows see 1 and 2.
  const Problem p = parsed(
      "dtype=f32 heads=6/3 dim=8 dim_v=5 lengths=3,7 kv_lengths=5,2 mask=bottom_right padded=4,9");
  EXPECT_EQ(p.visible_pairs(), 15);
  EXPECT_EQ(p.group(), 2);
  EXPECT_DOUBLE_EQ(p.flops(Direction::kForward), 15 * 6 * 2.0 * (8 + 5));
  EXPECT_DOUBLE_EQ(p.flops(Direction::kBackward), 15 * 6 * 2.0 * (3 * 8 + 2 * 5));
}

TEST(Problem, LongestSequenceIsCounted) {
  const Problem p = parsed("dtype=bf16 heads=1/1 dim=1 lengths=2147483648 mask=causal");
  EXPECT_EQ(p.visible_pairs(), (int64_t{1} << 61) + (int64_t{1} << 30));
  EXPECT_EQ(parsed("dtype=bf16 heads=1/1 dim=1 lengths=2147483648").visible_pairs(),
            int64_t{1} << 62);
}

TEST(Problem, CapacityIsThatOfTheLengthsUnlessGiven) {
  Problem p = parsed("dtype=f32 heads=2/1 dim=4 lengths=3,0 kv_lengths=5,2 tokens=9");
  EXPECT_EQ(p.capacity, (Capacity{9, 7, 2}));
  p.capacity = {16, 16, 4};
  EXPECT_EQ(validated(p)->capacity, (Capacity{16, 16, 4}));
  for (const Capacity& small : {Capacity{8, 16, 4}, Capacity{16, 6, 4}, Capacity{16, 16, 1}}) {
    p.capacity = small;
    const Result<Problem> result = validated(p);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().text(), HasSubstr("the lengths need 9, 7 and 2"));
  }
}

/// Each edit makes a valid problem invalid, and the message says how.
struct Fault {
  void (*edit)(Problem&);
  std::string_view value;
  std::string_view remedy;
};

TEST(Problem, ByHandIsCheckedLikeText) {
  const Problem valid = parsed("dtype=f32 heads=4/2 dim=8 lengths=3,5 padded=4,6 tokens=12");
  ASSERT_TRUE(validated(valid).ok());
  const Fault kFaults[] = {
      {[](Problem& p) { p.heads_kv = 0; }, "heads=4/0", "at least 1"},
      {[](Problem& p) { p.heads_kv = 3; }, "heads=4/3", "must be a multiple of the key heads 3"},
      {[](Problem& p) { p.dim_qk = 0; }, "dim=0", "1..576"},
      {[](Problem& p) { p.dim_v = 577; }, "dim_v=577", "1..576"},
      {[](Problem& p) { p.scale = std::numeric_limits<double>::infinity(); }, "scale=inf",
       "must be finite"},
      {[](Problem& p) { p.lengths.sequences.clear(); }, "lengths", "at least one sequence"},
      {[](Problem& p) { p.lengths.sequences[1].q_length = -1; }, "sequence 1 has length -1",
       "0..2147483648"},
      {[](Problem& p) { p.lengths.sequences[0].k_length = kMaxTokens + 1; },
       "kv_lengths: sequence 0 has length 2147483649", "0..2147483648"},
      {[](Problem& p) { p.lengths.sequences[1].q_extent = 4; },
       "padded: sequence 1 has extent 4 but length 5", "at least the length"},
      {[](Problem& p) { p.lengths.sequences[1].k_offset = 4; }, "kv_offset of sequence 1 is 4",
       "so 3 is needed"},
      {[](Problem& p) { p.lengths.tokens_q = 9; }, "tokens=9", "need 10 rows"},
      {[](Problem& p) { p.lengths.tokens_k = kMaxTokens + 1; }, "kv_tokens=2147483649",
       "at most 2147483648"},
      {[](Problem& p) { p.heads_q = int64_t{1} << 62; }, "heads=4611686018427387904/2",
       "use fewer tokens or heads"},
      {[](Problem& p) { p.layout = Layout::kSBHD; }, "layout=sbhd", "use layout=thd"},
  };
  for (const Fault& fault : kFaults) {
    Problem problem = valid;
    fault.edit(problem);
    const Result<Problem> result = validated(problem);
    ASSERT_FALSE(result.ok()) << fault.value;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().text(), AllOf(HasSubstr(fault.value), HasSubstr(fault.remedy)));
  }
}

TEST(Problem, SequencesThatOverflowATensorTogetherAreRefused) {
  Problem p = parsed("dtype=f32 heads=1/1 dim=1 lengths=2147483648");
  Sequence more = p.lengths.sequences[0];
  more.q_offset = more.q_extent;
  more.k_offset = more.k_extent;
  p.lengths.sequences.push_back(more);
  const Result<Problem> result = validated(p);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().text(), HasSubstr("4294967296 tokens up to sequence 1"));
}

TEST(CumulativeLengths, BecomeLengths) {
  EXPECT_EQ(*lengths_from_cumulative({0, 3, 3, 10}, "cu"), (std::vector<int64_t>{3, 0, 7}));
  EXPECT_EQ(*lengths_from_cumulative({0, kMaxTokens}, "cu"), (std::vector<int64_t>{kMaxTokens}));
}

TEST(CumulativeLengths, ErrorsNameTheEntry) {
  const auto message = [](const std::vector<int64_t>& cu) {
    const auto result = lengths_from_cumulative(cu, "cu_seqlens_q");
    return result.ok() ? std::string("accepted") : result.error().text();
  };
  EXPECT_THAT(message({}), HasSubstr("cu_seqlens_q has 0 entries; sequences + 1 >= 2"));
  EXPECT_THAT(message({0}), HasSubstr("cu_seqlens_q has 1 entries"));
  EXPECT_THAT(message({1, 2}), HasSubstr("cu_seqlens_q[0] is 1; must be 0"));
  EXPECT_THAT(message({-1, 2}), HasSubstr("cu_seqlens_q[0] is -1; must be 0"));
  EXPECT_THAT(message({0, 5, 4}), HasSubstr("entry 2 is 4 after 5"));
  EXPECT_THAT(message({0, -5}), HasSubstr("entry 1 is -5 after 0"));
  EXPECT_THAT(message({0, kMaxTokens + 1}), HasSubstr("[1] is 2147483649; at most 2147483648"));
  EXPECT_THAT(message({0, std::numeric_limits<int64_t>::min()}), HasSubstr("entry 1"));
}

TEST(Names, OfEveryEnumeration) {
  EXPECT_EQ(name(Direction::kForward), "forward");
  EXPECT_EQ(name(Direction::kBackward), "backward");
  EXPECT_EQ(name(MaskKind::kNone), "none");
  EXPECT_EQ(name(MaskKind::kCausal), "causal");
  EXPECT_EQ(name(Align::kTopLeft), "top_left");
  EXPECT_EQ(name(Align::kBottomRight), "bottom_right");
  EXPECT_EQ(name(Layout::kBSHD), "bshd");
  EXPECT_EQ(name(Layout::kSBHD), "sbhd");
  EXPECT_EQ(name(Layout::kTHD), "thd");
}

}  // namespace
}  // namespace longspan
