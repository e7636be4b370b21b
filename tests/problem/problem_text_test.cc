// The text form: every key, defaults, the canonical print and its round trip.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "longspan/problem.h"
#include "testkit/random_problem.h"

namespace longspan {
namespace {

using testkit::Random;

constexpr std::string_view kRequired = "dtype=f32 heads=4/2 dim=8 lengths=16";

Problem parsed(std::string_view text) {
  Result<Problem> problem = parse_problem(text);
  if (!problem.ok()) throw std::logic_error(problem.error().text());
  return std::move(problem).value();
}

Problem parsed_with(std::string_view more) {
  return parsed(std::string(kRequired) + " " + std::string(more));
}

TEST(ProblemText, RequiredKeysAndDefaults) {
  const Problem p = parsed("lengths=16,9 dim=24 heads=6/2 dtype=bf16");
  EXPECT_EQ(p.dtype, DType::kBF16);
  EXPECT_EQ(p.heads_q, 6);
  EXPECT_EQ(p.heads_kv, 2);
  EXPECT_EQ(p.dim_qk, 24);
  EXPECT_EQ(p.dim_v, 24);
  EXPECT_EQ(p.mask, MaskKind::kNone);
  EXPECT_EQ(p.align, Align::kTopLeft);
  EXPECT_EQ(p.layout, Layout::kTHD);
  EXPECT_EQ(p.scale, 1 / std::sqrt(24.0));
  EXPECT_EQ(p.lengths.sequences,
            (std::vector<Sequence>{{16, 16, 16, 16, 0, 0}, {9, 9, 9, 9, 16, 16}}));
  EXPECT_EQ(p.lengths.tokens_q, 25);
  EXPECT_EQ(p.lengths.tokens_k, 25);
  EXPECT_EQ(p.capacity, (Capacity{25, 25, 2}));
}

TEST(ProblemText, EveryOfferedKey) {
  const Problem p = parsed(
      "dtype=f16 heads=8/4 dim=192 dim_v=128 lengths=3,0,5 kv_lengths=0,4,5 mask=causal "
      "align=bottom_right padded=4,1,5 kv_padded=0,6,7 tokens=12 kv_tokens=13 layout=thd "
      "scale=0.125");
  EXPECT_EQ(p.dim_qk, 192);
  EXPECT_EQ(p.dim_v, 128);
  EXPECT_EQ(p.mask, MaskKind::kCausal);
  EXPECT_EQ(p.align, Align::kBottomRight);
  EXPECT_EQ(p.scale, 0.125);
  EXPECT_EQ(p.lengths.sequences,
            (std::vector<Sequence>{{3, 0, 4, 0, 0, 0}, {0, 4, 1, 6, 4, 0}, {5, 5, 5, 7, 5, 6}}));
  EXPECT_EQ(p.lengths.tokens_q, 12);
  EXPECT_EQ(p.lengths.tokens_k, 13);
}

TEST(ProblemText, KeysOnlyDefaultToTheirSide) {
  const Problem p = parsed("dtype=f32 heads=1/1 dim=1 lengths=3,5 padded=4,6");
  EXPECT_EQ(p.lengths.sequences[1], (Sequence{5, 5, 6, 5, 4, 3})) << "kv_padded follows kv_lengths";
}

TEST(ProblemText, LayoutDefaultsByExtents) {
  EXPECT_EQ(parsed("dtype=f32 heads=1/1 dim=1 lengths=4,4").layout, Layout::kBSHD);
  EXPECT_EQ(parsed("dtype=f32 heads=1/1 dim=1 lengths=4,3").layout, Layout::kTHD);
  EXPECT_EQ(parsed("dtype=f32 heads=1/1 dim=1 lengths=4,3 padded=4,4").layout, Layout::kTHD);
  EXPECT_EQ(parsed("dtype=f32 heads=1/1 dim=1 lengths=4,3 padded=5,5 kv_padded=9,9").layout,
            Layout::kBSHD);
  EXPECT_EQ(parsed("dtype=f32 heads=1/1 dim=1 lengths=4,4 tokens=9").layout, Layout::kTHD);
  EXPECT_EQ(parsed("dtype=f32 heads=1/1 dim=1 lengths=4,4 layout=sbhd").layout, Layout::kSBHD);
  EXPECT_EQ(parsed("dtype=f32 heads=1/1 dim=1 lengths=4,4 layout=thd").layout, Layout::kTHD);
}

TEST(ProblemText, BottomRightIsAnAlias) {
  const Problem alias = parsed_with("mask=bottom_right");
  EXPECT_EQ(alias, parsed_with("mask=causal align=bottom_right"));
  EXPECT_EQ(alias, parsed_with("mask=bottom_right align=bottom_right"));
  EXPECT_EQ(alias.text(), std::string(kRequired) + " mask=causal align=bottom_right");
}

TEST(ProblemText, CanonicalPrintStartsWithFiveKeysAndLeavesDefaultsOut) {
  EXPECT_EQ(
      parsed("mask=none lengths=16 dim_v=8 dim=8 heads=4/2 dtype=f32 scale=0.35355339059327373 "
             "kv_lengths=16 padded=16 kv_padded=16 tokens=16 kv_tokens=16 layout=bshd "
             "align=top_left window=-1,-1 softcap=0 alibi=none bias=none sink=none dropout=0 "
             "page=0 fp8=none deterministic=false invariant=false max_logit=false "
             "device_lengths=false")
          .text(),
      std::string(kRequired) + " mask=none");
}

TEST(ProblemText, CanonicalPrintFollowsTheOrderOfTheTable) {
  const std::string text =
      "dtype=f16 heads=8/4 dim=16 lengths=4,5 mask=causal dim_v=8 kv_lengths=6,7 "
      "align=bottom_right window=3,0 padded=5,5 kv_padded=32,16 tokens=11 kv_tokens=50 scale=0.5 "
      "softcap=30 alibi=default bias=b,1 sink=learnable dropout=0.5 dropout_seed=7 page=16 "
      "fp8=current deterministic=true invariant=true max_logit=true device_lengths=true prefix=2,0 "
      "chunk=3";
  EXPECT_EQ(parsed(text).text(), text);
  EXPECT_EQ(parsed("dtype=f32 heads=1/1 dim=4 lengths=4,4 mask=none layout=sbhd").text(),
            "dtype=f32 heads=1/1 dim=4 lengths=4,4 mask=none layout=sbhd");
  // The table of keys has the same order.
  size_t at = 0;
  for (const KeyInfo& key : problem_keys()) {
    if (key.name == "layout") continue;  // contradicts the unused rows of this problem
    const std::string word = fmt::format(" {}=", key.name);
    const size_t found = fmt::format(" {}", text).find(word);
    ASSERT_NE(found, std::string::npos) << key.name;
    EXPECT_GE(found, at) << key.name;
    at = found;
  }
}

TEST(ProblemText, WhiteSpaceOfAnyKindSeparates) {
  EXPECT_EQ(parsed("  dtype=f32\theads=4/2\n dim=8\r\nlengths=16  "), parsed(kRequired));
}

TEST(ProblemText, ScoreKeysFillTheirFields) {
  const Problem p = parsed_with(
      "window=128,0 softcap=30 alibi=default bias=1,h sink=learnable dropout=0.25 dropout_seed=3 "
      "deterministic=true invariant=true max_logit=true device_lengths=true prefix=5 "
      "chunk=32");
  EXPECT_EQ(p.window_left, 128);
  EXPECT_EQ(p.window_right, 0);
  EXPECT_EQ(p.softcap, 30);
  EXPECT_EQ(p.alibi, Alibi::kDefault);
  EXPECT_EQ(p.bias, Bias::k1H);
  EXPECT_EQ(p.sink, Sink::kLearnable);
  EXPECT_EQ(p.dropout, 0.25);
  EXPECT_EQ(p.dropout_seed, 3u);
  EXPECT_TRUE(p.deterministic && p.invariant && p.max_logit && p.device_lengths);
  EXPECT_EQ(p.prefix, std::vector<int64_t>{5});
  EXPECT_EQ(p.chunk, 32);
  EXPECT_EQ(parsed_with("fp8=mxfp8").fp8, Fp8::kMxfp8);
  EXPECT_EQ(parsed_with("dropout_seed=18446744073709551615").dropout_seed, ~uint64_t{0});
}

TEST(ProblemText, AnotherSpellingOfADefaultIsTheDefault) {
  const Problem plain = parsed_with("");
  EXPECT_EQ(parsed_with("softcap=0.0 dropout=0e0 page=00 window=-1,-1 prefix=0 chunk=0 bias=none "
                        "fp8=none deterministic=false"),
            plain);
}

TEST(ProblemText, PagesRoundKeyExtentsUp) {
  const Problem p = parsed("dtype=f32 heads=2/1 dim=8 lengths=5,16,0 page=8");
  EXPECT_EQ(p.lengths.sequences[0].k_extent, 8);
  EXPECT_EQ(p.lengths.sequences[1].k_extent, 16);
  EXPECT_EQ(p.lengths.sequences[2].k_extent, 0);
  EXPECT_EQ(p.lengths.tokens_k, 24);
  EXPECT_EQ(p.text(), "dtype=f32 heads=2/1 dim=8 lengths=5,16,0 mask=none page=8");
}

TEST(ProblemText, MergedFieldsReplaceOnesOfTheSameName) {
  const ProblemFields file = *parse_fields("dtype=f32 heads=4/2 dim=8 lengths=16 mask=causal");
  const ProblemFields flags = *parse_fields("mask=none scale=2");
  const Problem p = *make_problem(file.merged(flags));
  EXPECT_EQ(p.mask, MaskKind::kNone);
  EXPECT_EQ(p.scale, 2);
  EXPECT_EQ(p.heads_q, 4);
}

double random_scale(Random& random, const Problem& p) {
  switch (random.between(0, 4)) {
    case 0: return 1 / std::sqrt(static_cast<double>(p.dim_qk));
    case 1: return 0;
    case 2:
      return std::ldexp(static_cast<double>(random.bits()),
                        static_cast<int>(random.between(-1100, p.dtype == DType::kF64 ? 950 : 60)));
    case 3: return -std::ldexp(static_cast<double>(random.bits()), -64);
    default: return 5e-324;
  }
}

TEST(ProblemText, CanonicalPrintParsesBackToTheSameProblem) {
  Random random(11);
  for (int i = 0; i < 5000; ++i) {
    Problem p = testkit::random_problem(random, {.sequences = 6, .length = 2000});
    p.scale = random_scale(random, p);
    const std::string text = p.text();
    const Result<Problem> back = parse_problem(text);
    ASSERT_TRUE(back.ok()) << text << ": " << back.error().text();
    ASSERT_EQ(*back, p) << text;
    ASSERT_EQ(back->text(), text);
  }
}

TEST(ProblemText, AnyBytesParseOrAreRefusedWithAMessage) {
  Random random(12);
  const std::string valid =
      "dtype=f16 heads=8/4 dim=16 lengths=4,5 mask=causal kv_lengths=6,7 padded=5,5 scale=0.5";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = valid;
    for (int64_t edits = random.between(1, 4); edits > 0; --edits) {
      const auto at = static_cast<size_t>(random.between(0, static_cast<int64_t>(text.size()) - 1));
      constexpr char kBytes[] = {'0', '9', ',', '/', '=', ' ', '-', '.', 'e', '\0', '\xff'};
      switch (random.between(0, 2)) {
        case 0: text[at] = random.one_of(kBytes); break;
        case 1: text.insert(at, 1, random.one_of(kBytes)); break;
        default: text.erase(at, 1); break;
      }
    }
    const Result<Problem> result = parse_problem(text);
    if (!result.ok()) {
      ASSERT_FALSE(result.error().message.empty());
      continue;
    }
    ++accepted;
    const Result<Problem> back = parse_problem(result->text());
    ASSERT_TRUE(back.ok()) << text;
    ASSERT_EQ(*back, *result) << text;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace longspan
