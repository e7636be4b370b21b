// When forward's all_gather by hopper pulls, and what is said where it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/choose.h"
#include "longspan/plan_record.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Device kH200{.name = "cuda", .ordinal = 0, .multiprocessors = 132, .capability = 90};

Options by_hopper(const std::string& partition = "zigzag") {
  Options options;
  options.forward = {"all_gather", {RoutingMode::kRequire, "hopper"}};
  options.backward.strategy = kNoStrategy;
  options.partition = partition;
  return options;
}

Choice chosen(const std::string& problem, int ranks, const Options& options, bool lends = true) {
  const auto cache = make_plan_cache();
  auto choice = choose(parse_problem(problem).value(), Topology::blocks(ranks, 1), kH200, options,
                       *cache, lends);
  EXPECT_TRUE(choice.ok()) << choice.error().text();
  EXPECT_TRUE(choice->explanation.ok()) << choice->explanation.text();
  return *std::move(choice);
}

std::string reason(const Choice& choice) { return choice.explanation.forward.strategy_reason; }

constexpr const char* kProblem = "dtype=bf16 heads=4/2 dim=128 lengths=4096 mask=causal";

TEST(PullsChoice, PullsWhereRanksLend) {
  const Choice choice = chosen(kProblem, 2, by_hopper());
  EXPECT_TRUE(choice.setting.pulls);
  EXPECT_THAT(reason(choice), HasSubstr("its launch pulls keys and values"));
}

TEST(PullsChoice, IsSilentWhereItIsNoQuestion) {
  Options off = by_hopper();
  off.pull = false;
  for (const Choice& choice : {chosen(kProblem, 2, by_hopper(), false),
                               chosen(kProblem, 1, by_hopper()), chosen(kProblem, 2, off)}) {
    EXPECT_FALSE(choice.setting.pulls);
    EXPECT_THAT(reason(choice), Not(HasSubstr("launch")));
  }
}

TEST(PullsChoice, SaysWhyNot) {
  const auto expect = [](const std::string& problem, int ranks, const std::string& partition,
                         const std::string& why) {
    const Choice choice = chosen(problem, ranks, by_hopper(partition));
    EXPECT_FALSE(choice.setting.pulls) << problem;
    EXPECT_THAT(reason(choice), HasSubstr("its launch does not pull: " + why));
  };
  expect("dtype=bf16 heads=4/2 dim=512 lengths=4096 mask=causal", 2, "zigzag",
         "kernels of 512 columns leave no warp");
  expect("dtype=bf16 heads=4/2 dim=128 lengths=4096 mask=causal softcap=20", 2, "zigzag",
         "kernels with score terms");
  expect(kProblem, 18, "zigzag", "18 ranks > 17");
  expect(kProblem, 2, "striped", "results would not be whole (striped partition");
}

TEST(PullsChoice, TheAutomaticChoicePricesThem) {
  Options options;
  options.forward.routing = {RoutingMode::kRequire, "hopper"};
  options.partition = "zigzag";
  const auto forward_of = [&](const char* length) {
    const std::string text = std::string("dtype=bf16 heads=32/8 dim=128 mask=causal lengths=");
    return chosen(text + length, 2, options).setting;
  };
  EXPECT_TRUE(forward_of("4096").pulls);
  EXPECT_FALSE(forward_of("16384").pulls) << "backward finds heads where all_to_all left them";
  options.backward.strategy = kNoStrategy;
  EXPECT_TRUE(forward_of("16384").pulls);
  options.pull = false;
  EXPECT_FALSE(forward_of("16384").pulls);
}

TEST(PullsChoice, OthersOfferNoPulls) {
  Options options = by_hopper();
  options.forward.routing = {RoutingMode::kRequire, "cuda/reference"};
  const Choice choice = chosen(kProblem, 2, options);
  EXPECT_FALSE(choice.setting.pulls);
  EXPECT_THAT(reason(choice), HasSubstr("cuda/reference computes keys and values that are there"));
}

TEST(PullsChoice, PlansThatPullNeedACommunicatorThatLends) {
  PlanRecord record;
  const auto host = make_threads_communicators(Topology::blocks(2, 1))[0];
  EXPECT_TRUE(check_loans(record, *host).ok());
  record.pulls = true;
  const Status refused = check_loans(record, *host);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("communicator threads lends none"));
}

}  // namespace
}  // namespace longspan
