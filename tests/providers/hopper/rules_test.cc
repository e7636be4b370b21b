// What hopper declines, and what it says then.
#include "providers/hopper/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "providers/hopper/hopper.h"

namespace longspan::hopper {
namespace {

using ::testing::HasSubstr;

Device h200() {
  Device device;
  device.name = "cuda:0";
  device.ordinal = 0;
  device.multiprocessors = 132;
  device.capability = 90;
  device.product = "NVIDIA H200";
  return device;
}

TileProblem good() {
  return {.dtype = DType::kBF16,
          .heads_q = 32,
          .heads_kv = 8,
          .group = 4,
          .dim_qk = 128,
          .dim_v = 128,
          .capacity_q = 8192,
          .capacity_k = 8192};
}

using Change = std::function<void(TileProblem&)>;

TEST(HopperRules, Declines) {
  struct Bad {
    DeclineCode code;
    std::string part;  // of the detail
    Change change;
  };
  const Bad all[] = {
      {DeclineCode::kDType, "f32", [](auto& p) { p.dtype = DType::kF32; }},
      {DeclineCode::kHeadDim, "dim 100 is no multiple of 8", [](auto& p) { p.dim_qk = 100; }},
      {DeclineCode::kHeadDim, "dim_v 12 is no multiple of 8", [](auto& p) { p.dim_v = 12; }},
      {DeclineCode::kHeadDim, "dim 520 > 512", [](auto& p) { p.dim_qk = 520; }},
      {DeclineCode::kHeadDim, "dim_v 576 > 512", [](auto& p) { p.dim_v = 576; }},
      {DeclineCode::kCapacity, "key rows > 268435456",
       [](auto& p) { p.capacity_k = (int64_t{1} << 28) + 1; }},
      {DeclineCode::kCapacity, "of 32 heads > 1073741824 rows of one head",
       [](auto& p) { p.capacity_q = (int64_t{1} << 25) + 1; }},
      {DeclineCode::kBias, "bias", [](auto& p) { p.features.bias = Bias::kB1; }},
      {DeclineCode::kModification, "modification", [](auto& p) { p.features.modification = "m"; }},
      {DeclineCode::kDeviceLengths, "device_lengths",
       [](auto& p) { p.features.device_lengths = true; }},
  };
  for (const Bad& bad : all) {
    TileProblem problem = good();
    bad.change(problem);
    const auto decline = refusal(problem, h200());
    ASSERT_TRUE(decline.has_value()) << bad.part;
    EXPECT_EQ(decline->code, bad.code) << decline->detail;
    EXPECT_THAT(decline->detail, HasSubstr(bad.part));
  }
}

TileProblem good_backward() {
  TileProblem problem = good();
  problem.direction = Direction::kBackward;
  problem.dim_qk = problem.dim_v = 256;
  return problem;
}

TEST(HopperRules, BackwardDeclines) {
  struct Bad {
    DeclineCode code;
    std::string part;  // of the detail
    Change change;
  };
  const Bad all[] = {
      {DeclineCode::kHeadDim, "dim 128 and dim_v 64 are not above 128, which backward of hopper",
       [](auto& p) { p.dim_qk = 128, p.dim_v = 64; }},
      {DeclineCode::kHeadDim, "dim 257 is no multiple of 8", [](auto& p) { p.dim_qk = 257; }},
      {DeclineCode::kHeadDim, "dim_v 520 > 512", [](auto& p) { p.dim_v = 520; }},
      {DeclineCode::kDType, "f32", [](auto& p) { p.dtype = DType::kF32; }},
      {DeclineCode::kBias, "bias is not offered by backward of hopper",
       [](auto& p) { p.features.bias = Bias::kB1; }},
      {DeclineCode::kModification, "modification", [](auto& p) { p.features.modification = "m"; }},
      {DeclineCode::kDeviceLengths, "device_lengths",
       [](auto& p) { p.features.device_lengths = true; }},
  };
  for (const Bad& bad : all) {
    TileProblem problem = good_backward();
    bad.change(problem);
    const auto decline = refusal(problem, h200());
    ASSERT_TRUE(decline.has_value()) << bad.part;
    EXPECT_EQ(decline->code, bad.code) << decline->detail;
    EXPECT_THAT(decline->detail, HasSubstr(bad.part));
  }
}

TEST(HopperRules, BackwardTakes) {
  const Change all[] = {
      [](auto&) {},
      [](auto& p) { p.dtype = DType::kF16; },
      [](auto& p) { p.dim_qk = p.dim_v = 136; },
      [](auto& p) { p.dim_qk = 192, p.dim_v = 128; },
      [](auto& p) { p.dim_qk = 8, p.dim_v = 512; },
      [](auto& p) { p.features.whole = true; },
      [](auto& p) { p.features.deterministic = true; },
      [](auto& p) { p.features.window = true; },
      [](auto& p) { p.features.softcap = true; },
      [](auto& p) { p.features.alibi = true; },
      [](auto& p) { p.features.dropout = true; },
      [](auto& p) { p.features.softcap = p.features.alibi = p.features.dropout = true; },
      [](auto& p) { p.capacity_q = p.capacity_k = 0; },
  };
  for (const Change& change : all) {
    TileProblem problem = good_backward();
    change(problem);
    const Verdict verdict = kHopper.consider(problem, h200());
    const Decline* const decline = declined(verdict);
    ASSERT_EQ(decline, nullptr) << decline->detail;
    EXPECT_FALSE(std::get<Offer>(verdict).partials_16bit);
  }
}

TEST(HopperRules, Takes) {
  const Change all[] = {
      [](auto&) {},
      [](auto& p) { p.dtype = DType::kF16; },
      [](auto& p) { p.dim_qk = p.dim_v = 8; },
      [](auto& p) { p.dim_qk = p.dim_v = 512; },
      [](auto& p) { p.dim_qk = 192; },
      [](auto& p) { p.heads_q = 3, p.heads_kv = 1, p.group = 8, p.group_offset = 2; },
      [](auto& p) { p.features.window = true; },
      [](auto& p) { p.features.whole = true; },
      [](auto& p) { p.features.deterministic = true; },
      [](auto& p) { p.features.softcap = true; },
      [](auto& p) { p.features.alibi = true; },
      [](auto& p) { p.features.dropout = true; },
      [](auto& p) { p.features.max_logit = true; },
      [](auto& p) { p.features.paged = true; },
      [](auto& p) { p.capacity_q = p.capacity_k = 0; },
  };
  for (const Change& change : all) {
    TileProblem problem = good();
    change(problem);
    const Verdict verdict = kHopper.consider(problem, h200());
    const Decline* const decline = declined(verdict);
    ASSERT_EQ(decline, nullptr) << decline->detail;
    EXPECT_FALSE(std::get<Offer>(verdict).partials_16bit);
  }
}

TEST(HopperRules, OffersNameTheirKernels) {
  TileProblem problem = good();
  problem.dim_qk = 184;
  problem.features.softcap = true;
  const Verdict verdict = kHopper.consider(problem, h200());
  ASSERT_EQ(declined(verdict), nullptr);
  EXPECT_EQ(std::get<Offer>(verdict).detail,
            "sm_90a kernels of 192/128 columns with terms, FP32 partial results");
  problem.direction = Direction::kBackward;
  EXPECT_EQ(std::get<Offer>(kHopper.consider(problem, h200())).detail,
            "sm_90a kernels of 192 columns with terms, FP32 partial results");
  problem.features.softcap = false;
  EXPECT_EQ(std::get<Offer>(kHopper.consider(problem, h200())).detail,
            "sm_90a kernels of 192 columns, FP32 partial results");
}

TEST(HopperRules, OtherDevices) {
  Device ada = h200();
  ada.capability = 89;
  ada.product = "other";
  auto decline = refusal(good(), ada);
  ASSERT_TRUE(decline.has_value());
  EXPECT_EQ(decline->code, DeclineCode::kDevice);
  EXPECT_THAT(decline->detail, HasSubstr("compute capability 8.9 of cuda:0 is not 9.0"));
  decline = refusal(good(), Device());
  ASSERT_TRUE(decline.has_value());
  EXPECT_THAT(decline->detail, HasSubstr("device cpu is not cuda: name a GPU, or leave"));
}

}  // namespace
}  // namespace longspan::hopper
