// When backward's all_gather writes whole gradients of gathered keys, and what is said where not.
#include "engine/gathering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "plan/fake_provider.h"
#include "strategies/build.h"

namespace longspan {
namespace {

using test::FakeProvider;
using ::testing::HasSubstr;

const Device kGpu{.name = "cuda", .ordinal = 0, .capability = 90};
constexpr const char* kLong =
    "dtype=bf16 heads=32/8 dim=128 lengths=65536 mask=causal window=4096,0";

Verdict in_16_bits(const TileProblem&) { return Offer{.partials_16bit = true}; }

Setting gather_setting(std::string_view problem, PartitionKind kind = PartitionKind::kContiguous) {
  Setting setting = test::setting_of(
      problem, {.forward = "all_gather", .backward = "all_gather", .partition = kind, .ranks = 2});
  setting.whole = true;
  return setting;
}

/// The reason that is added; the setting has the choice.
std::string chosen(Setting& setting, const FakeProvider& provider, const Rates& rates = {}) {
  Selection selection;
  selection.provider = &provider;
  const Status status = choose_gathers(setting, kGpu, rates, selection);
  EXPECT_TRUE(status.ok()) << status.error().text();
  return selection.strategy_reason;
}

TEST(ChooseGathers, WhereItTakesLessTime) {
  const FakeProvider provider("fake", in_16_bits);
  Setting setting = gather_setting(kLong);
  EXPECT_EQ(chosen(setting, provider), "; its gradients are whole, of gathered keys");
  EXPECT_TRUE(setting.gathers_whole);
}

TEST(ChooseGathers, SaysWhyNot) {
  const auto expect = [](Setting setting, const FakeProvider& provider, const std::string& why,
                         const Rates& rates = {}) {
    setting.gathers_whole = true;
    EXPECT_THAT(chosen(setting, provider, rates),
                HasSubstr("; its gradients are added up: " + why));
    EXPECT_FALSE(setting.gathers_whole);
  };
  const FakeProvider rounds("fake", in_16_bits);
  expect(gather_setting("dtype=bf16 heads=32/8 dim=128 lengths=65536 mask=causal",
                        PartitionKind::kZigzag),
         rounds, "they would not be whole");
  expect(gather_setting(kLong), FakeProvider("fake"), "partial results of fake are not of 16 bits");
  expect(gather_setting(kLong), test::declining("fake", "dim 128 > 64"), "dim 128 > 64");
  Rates late;  // tiles of own keys are long done when the others arrive
  late.node_bytes = 1e9;
  expect(gather_setting("dtype=bf16 heads=32/8 dim=128 lengths=16384 mask=none"), rounds,
         "whole ones of gathered keys are modelled at", late);
}

TEST(ChooseGathers, IsSilentWhereItIsNoQuestion) {
  const FakeProvider provider("fake", in_16_bits);
  Setting ring = gather_setting(kLong);
  ring.backward = "ring";
  Setting host = gather_setting(kLong);
  host.whole = false;
  for (Setting setting : {ring, host}) {
    EXPECT_EQ(chosen(setting, provider), "");
    EXPECT_FALSE(setting.gathers_whole);
  }
  EXPECT_EQ(provider.considered, 0);
}

}  // namespace
}  // namespace longspan
