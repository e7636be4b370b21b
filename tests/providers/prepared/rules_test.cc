// What is declined whatever a store holds.
#include "providers/prepared/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "scene.h"

namespace longspan::prepared::testing {
namespace {

using ::testing::HasSubstr;

void expect(DeclineCode code, const std::string& part,
            const std::function<void(TileProblem&)>& change) {
  TileProblem p = problem();
  change(p);
  const auto decline = refusal(p, h200());
  ASSERT_TRUE(decline.has_value()) << part;
  EXPECT_EQ(decline->code, code) << decline->detail;
  EXPECT_THAT(decline->detail, HasSubstr(part));
}

TEST(PreparedRules, AGoodProblemIsNotRefused) {
  EXPECT_FALSE(refusal(problem(), h200()).has_value());
  EXPECT_FALSE(refusal(problem(Direction::kBackward), h200()).has_value());
}

TEST(PreparedRules, DevicesOfAnotherKind) {
  Device device = h200();
  device.capability = 100;
  EXPECT_THAT(refusal(problem(), device)->detail, HasSubstr("compute capability 10.0"));
  EXPECT_EQ(refusal(problem(), cpu_device(1))->code, DeclineCode::kDevice);
}

TEST(PreparedRules, TypesAndDims) {
  expect(DeclineCode::kDType, "dtype f32", [](TileProblem& p) { p.dtype = DType::kF32; });
  expect(DeclineCode::kHeadDim, "dim 20 is no", [](TileProblem& p) { p.dim_qk = 20; });
  expect(DeclineCode::kHeadDim, "dim_v 520", [](TileProblem& p) { p.dim_v = 520; });
}

TEST(PreparedRules, PartsOfGroups) {
  expect(DeclineCode::kHeads, "do not share their 2 key heads", [](TileProblem& p) {
    p.heads_q = 2;
    p.group_offset = 1;
  });
}

TEST(PreparedRules, WhatNoEngineComputes) {
  const auto backward = [](int64_t dim, int64_t dim_v) {
    return [=](TileProblem& p) {
      p.direction = Direction::kBackward;
      p.dim_qk = dim;
      p.dim_v = dim_v;
    };
  };
  expect(DeclineCode::kHeadDim, "backward of dim 512, dim_v 512", backward(512, 512));
  expect(DeclineCode::kHeadDim, "backward of dim 128, dim_v 64", backward(128, 64));
  expect(DeclineCode::kHeads, "needs a key head for each of 4 query heads", backward(192, 128));
  expect(DeclineCode::kWindow, "is fixed when FROST is built", [](TileProblem& p) {
    p.dim_qk = p.dim_v = 320;
    p.features.window = true;
  });
  TileProblem alone = problem(Direction::kBackward);
  backward(192, 128)(alone);
  alone.heads_q = 2;
  alone.group = 1;
  EXPECT_FALSE(refusal(alone, h200()).has_value());
}

TEST(PreparedRules, Capacity) {
  expect(DeclineCode::kCapacity, "rows of 4 heads is more",
         [](TileProblem& p) { p.capacity_q = int64_t{1} << 29; });
}

TEST(PreparedRules, EveryFeature) {
  expect(DeclineCode::kSoftcap, "softcap", [](TileProblem& p) { p.features.softcap = true; });
  expect(DeclineCode::kAlibi, "alibi", [](TileProblem& p) { p.features.alibi = true; });
  expect(DeclineCode::kBias, "bias", [](TileProblem& p) { p.features.bias = Bias::k11; });
  expect(DeclineCode::kDropout, "dropout", [](TileProblem& p) { p.features.dropout = true; });
  expect(DeclineCode::kModification, "modification",
         [](TileProblem& p) { p.features.modification = "m"; });
  expect(DeclineCode::kPage, "page", [](TileProblem& p) { p.features.paged = true; });
  expect(DeclineCode::kMaxLogit, "max_logit", [](TileProblem& p) { p.features.max_logit = true; });
  expect(DeclineCode::kDeviceLengths, "device_lengths",
         [](TileProblem& p) { p.features.device_lengths = true; });
  expect(DeclineCode::kFp8, "fp8", [](TileProblem& p) { p.features.fp8 = Fp8::kDelayed; });
}

}  // namespace
}  // namespace longspan::prepared::testing
