// Backward by cudnn gathers keys where that takes less time, and is priced as it would run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/choose.h"
#include "engine/choose_strategies.h"
#include "providers/cudnn/recorded_device.h"

namespace longspan::cudnn {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(GathersChoice, TheAutomaticChoicePricesThem) {
  ASSERT_NO_FATAL_FAILURE(load_without_device());
  const Device h200{.name = "cuda", .ordinal = 0, .multiprocessors = 132, .capability = 90};
  Options options;
  options.forward.strategy = "all_gather";
  options.backward.routing = {RoutingMode::kRequire, "cudnn"};
  options.partition = "contiguous";
  constexpr const char* kWindow =
      "dtype=bf16 heads=32/8 dim=128 lengths=65536 mask=causal window=4096,0";
  const auto cache = make_plan_cache();
  const auto choice =
      choose(parse_problem(kWindow).value(), Topology::blocks(2, 1), h200, options, *cache);
  ASSERT_TRUE(choice.ok()) << choice.error().text();
  ASSERT_TRUE(choice->explanation.ok()) << choice->explanation.text();
  EXPECT_EQ(choice->setting.backward, "all_gather");
  EXPECT_TRUE(choice->setting.gathers_whole);
  const std::string& reason = choice->explanation.backward.strategy_reason;
  EXPECT_THAT(reason, HasSubstr("; its gradients are whole, of gathered keys"));
  const auto seconds = modelled_seconds(choice->setting, Direction::kBackward, options.rates);
  ASSERT_TRUE(seconds.ok()) << seconds.error().text();
  EXPECT_THAT(reason, StartsWith(fmt::format("least modelled time, {:.3g} ms", *seconds * 1e3)));
}

}  // namespace
}  // namespace longspan::cudnn
