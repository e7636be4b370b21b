// What cudnn declines, and what it says then. No device and no cuDNN is needed.
#include "providers/cudnn/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "providers/cudnn/cudnn.h"
#include "providers/cudnn/library.h"

namespace longspan::cudnn {
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

struct Bad {
  DeclineCode code;
  std::string part;  // of the detail
  std::function<void(TileProblem&)> change;
};

void expect_declined(const Bad& bad, Direction direction) {
  TileProblem problem = good();
  problem.direction = direction;
  bad.change(problem);
  const std::optional<Decline> decline = refusal(problem, h200());
  ASSERT_TRUE(decline.has_value()) << bad.part;
  EXPECT_EQ(decline->code, bad.code) << decline->detail;
  EXPECT_THAT(decline->detail, HasSubstr(bad.part));
}

void expect_taken(const std::function<void(TileProblem&)>& change, Direction direction) {
  TileProblem problem = good();
  problem.direction = direction;
  change(problem);
  const std::optional<Decline> decline = refusal(problem, h200());
  EXPECT_FALSE(decline.has_value()) << decline->detail;
}

constexpr Direction kBoth[] = {Direction::kForward, Direction::kBackward};

auto dims(int64_t dim_qk, int64_t dim_v) {
  return [=](TileProblem& p) {
    p.dim_qk = dim_qk;
    p.dim_v = dim_v;
  };
}

TEST(CudnnRules, DeclinesInBothDirections) {
  const Bad cases[] = {
      {DeclineCode::kDType, "dtype f32", [](auto& p) { p.dtype = DType::kF32; }},
      {DeclineCode::kDType, "dtype f64", [](auto& p) { p.dtype = DType::kF64; }},
      {DeclineCode::kHeadDim, "dim 100 is no multiple of 8", dims(100, 128)},
      {DeclineCode::kHeadDim, "dim_v 12 is no multiple of 8", dims(64, 12)},
      {DeclineCode::kHeadDim, "dim 264 > 256", dims(264, 264)},
      {DeclineCode::kHeadDim, "dim_v 512 > 256", dims(128, 512)},
      {DeclineCode::kHeadDim, "dim 0 not in", dims(0, 128)},
      {DeclineCode::kHeadDim, "dim 128 with dim_v 192 is not verified", dims(128, 192)},
      {DeclineCode::kHeadDim, "dim 96 with dim_v 64 is not verified", dims(96, 64)},
      {DeclineCode::kHeads, "key head 9 of 8", [](auto& p) { p.group_offset = 8; }},
      {DeclineCode::kHeads, "6 query heads from place 2 of a group of 4 do not share their 2 key",
       [](auto& p) {
         p.heads_q = 6;
         p.heads_kv = 2;
         p.group_offset = 2;
       }},
      {DeclineCode::kHeads, "40000 query heads > 32768",
       [](auto& p) {
         p.heads_q = p.heads_kv = 40000;
         p.group = 1;
       }},
      {DeclineCode::kCapacity, "query rows", [](auto& p) { p.capacity_q = (1 << 30) + 1; }},
      {DeclineCode::kCapacity, "query rows", [](auto& p) { p.capacity_q = 1 << 27; }},
      {DeclineCode::kCapacity, "key rows", [](auto& p) { p.capacity_k = 1 << 29; }},
      {DeclineCode::kSoftcap, "softcap is not offered", [](auto& p) { p.features.softcap = true; }},
      {DeclineCode::kAlibi, "alibi is not offered", [](auto& p) { p.features.alibi = true; }},
      {DeclineCode::kBias, "bias with device_lengths is not offered",
       [](auto& p) {
         p.features.bias = Bias::k11;
         p.features.device_lengths = true;
       }},
      {DeclineCode::kDropout, "dropout is not offered", [](auto& p) { p.features.dropout = true; }},
      {DeclineCode::kModification, "a modification is not offered",
       [](auto& p) { p.features.modification = "mine"; }},
      {DeclineCode::kPage, "page", [](auto& p) { p.features.paged = true; }},
      {DeclineCode::kFp8, "fp8=current", [](auto& p) { p.features.fp8 = Fp8::kCurrent; }},
      {DeclineCode::kWhole, "whole results with device_lengths",
       [](auto& p) { p.features.device_lengths = p.features.whole = true; }},
      {DeclineCode::kMaxLogit, "max_logit", [](auto& p) { p.features.max_logit = true; }},
  };
  for (const Bad& bad : cases) {
    for (const Direction direction : kBoth) expect_declined(bad, direction);
  }
}

TEST(CudnnRules, DeclinesOneDirectionAlone) {
  expect_declined({DeclineCode::kHeadDim, "dim 256 with dim_v 128 is not verified", dims(256, 128)},
                  Direction::kBackward);
  expect_taken(dims(256, 128), Direction::kForward);
  const auto large = [](TileProblem& p) {
    p.features.deterministic = true;
    p.capacity_q = 8193;
  };
  expect_declined({DeclineCode::kDeterministic, "writes 4328521728 bytes of scores", large},
                  Direction::kBackward);
  expect_taken(large, Direction::kForward);
  for (const bool deterministic : {false, true}) {
    const auto unbounded = [=](TileProblem& p) {
      p.features.device_lengths = true;
      p.features.deterministic = deterministic;
      if (!deterministic) p.dim_qk = p.dim_v = 72;
    };
    expect_declined({DeclineCode::kDeviceLengths, "device_lengths in backward with dim", unbounded},
                    Direction::kBackward);
    expect_taken(unbounded, Direction::kForward);
  }
}

TEST(CudnnRules, DeclinesABiasThatOneKeyHeadCannotHold) {
  const auto long_rows = [](TileProblem& p) {
    p.features.bias = Bias::k1H;
    p.capacity_q = p.capacity_k = 16448;  // 4 heads x 16448 x 16448 x 2 bytes > 2 GiB
  };
  const Bad bad{
      DeclineCode::kBias,
      "bias of 4 query heads on one key head and 16448 x 16448 rows takes 2164293632 bytes",
      long_rows};
  for (const Direction direction : kBoth) expect_declined(bad, direction);
  // Forward reads one head of it, or one row.
  for (const Bias kind : {Bias::k11, Bias::k111S}) {
    expect_taken(
        [&](TileProblem& p) {
          long_rows(p);
          p.features.bias = kind;
        },
        Direction::kForward);
  }
}

TEST(CudnnRules, TakesWhatIsVerified) {
  for (const Direction direction : kBoth) {
    for (const int64_t dim : {8, 64, 72, 80, 96, 128, 160, 192, 256}) {
      expect_taken(dims(dim, dim), direction);
    }
    for (const auto& [qk, v] : {std::pair{192, 128}, {128, 64}, {64, 128}}) {
      expect_taken(dims(qk, v), direction);
    }
    expect_taken([](TileProblem& p) { p.dtype = DType::kF16; }, direction);
    expect_taken([](TileProblem& p) { p.features.window = true; }, direction);
    expect_taken([](TileProblem& p) { p.features.deterministic = true; }, direction);
    expect_taken([](TileProblem& p) { p.features.whole = true; }, direction);
    expect_taken([](TileProblem& p) { p.features.device_lengths = true; }, direction);
    expect_taken([](TileProblem& p) { p.capacity_q = p.capacity_k = 0; }, direction);
    for (const Bias kind : {Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S}) {
      expect_taken([=](TileProblem& p) { p.features.bias = kind; }, direction);
    }
    // A part of a group on one key head.
    expect_taken(
        [](TileProblem& p) {
          p.heads_q = 3;
          p.heads_kv = 1;
          p.group = 8;
          p.group_offset = 2;
        },
        direction);
  }
}

TEST(CudnnRules, DeclinesOtherDevices) {
  const Decline host = refusal(good(), cpu_device(1)).value();
  EXPECT_EQ(host.code, DeclineCode::kDevice);
  EXPECT_THAT(host.detail, HasSubstr("device cpu is not cuda: name a GPU, or leave"));
  Device other = h200();
  other.capability = 80;
  const Decline older = refusal(good(), other).value();
  EXPECT_EQ(older.code, DeclineCode::kDevice);
  EXPECT_THAT(older.detail, HasSubstr("compute capability 8.0 of cuda:0 is not 9.0"));
  other.capability = 103;
  EXPECT_THAT(refusal(good(), other).value().detail, HasSubstr("10.3"));
}

TEST(CudnnRules, ProviderSaysTheSame) {
  TileProblem problem = good();
  problem.features.softcap = true;
  const Verdict verdict = kCudnn.consider(problem, h200());
  ASSERT_NE(declined(verdict), nullptr);
  EXPECT_EQ(declined(verdict)->code, DeclineCode::kSoftcap);
  const auto plan = kCudnn.prepare(problem, h200());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(plan.error().message, HasSubstr("softcap is not offered"));
}

TEST(CudnnLibrary, RefusesVersionsByName) {
  EXPECT_THAT(refused_version(91000).value(), HasSubstr("9.10.0 computes wrong attention"));
  EXPECT_THAT(refused_version(91001).value(), HasSubstr("9.10.1 computes wrong attention"));
  EXPECT_THAT(refused_version(91400).value(), HasSubstr("9.14.0 computes wrong sliding windows"));
  EXPECT_THAT(refused_version(91801).value(), HasSubstr("9.18.1 is older than 9.19.0"));
  EXPECT_FALSE(refused_version(91900).has_value());
  EXPECT_FALSE(refused_version(92700).has_value());
}

}  // namespace
}  // namespace longspan::cudnn
