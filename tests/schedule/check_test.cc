// Defects that need a schedule of their own, and what the error says.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "longspan/schedule.h"
#include "schedule/corruptions.h"
#include "strategies/build.h"

namespace longspan::test {
namespace {

Setting two_ranks(std::string_view strategy) {
  return setting_of("dtype=bf16 heads=4/2 dim=8 lengths=32,9 mask=causal",
                    {.forward = std::string(strategy),
                     .backward = std::string(strategy),
                     .partition = PartitionKind::kZigzag,
                     .ranks = 2});
}

Step& first(Schedule& schedule, StepKind kind) {
  return *std::find_if(schedule.steps.begin(), schedule.steps.end(),
                       [kind](const Step& step) { return step.kind == kind; });
}

std::string message(const Setting& setting, const std::vector<Schedule>& schedules) {
  const Status status = check(setting, schedules);
  return status.ok() ? "" : status.error().message;
}

TEST(Check, NamesRankStepAndBuffer) {
  const Setting setting = two_ranks("ring");
  std::vector<Schedule> schedules = schedules_of(setting, Direction::kForward);
  Step& attend = first(schedules[1], StepKind::kAttend);
  const auto id = &attend - schedules[1].steps.data();
  ++attend.parts[0].tiles[0].k_row;
  const std::string text = message(setting, schedules);
  EXPECT_EQ(
      text.rfind("ring forward: rank 1, step " + std::to_string(id) + " (attend), buffer \"k\"", 0),
      0u)
      << text;
}

TEST(Check, WantsOneScheduleOfEachRank) {
  const Setting setting = two_ranks("ring");
  std::vector<Schedule> schedules = schedules_of(setting, Direction::kForward);
  std::swap(schedules[0], schedules[1]);
  EXPECT_NE(message(setting, schedules).find("expected rank 0 of 2"), std::string::npos);
  schedules.pop_back();
  EXPECT_NE(message(setting, schedules).find("1 schedules for a partition of 2"),
            std::string::npos);
  EXPECT_NE(message(setting, {}).find("no schedules"), std::string::npos);
}

TEST(Check, RoundedResultsAreNotAdded) {
  // The 16-bit dk of the result would become a summand.
  const Setting setting = two_ranks("ring");
  std::vector<Schedule> schedules = schedules_of(setting, Direction::kBackward);
  Step& add = first(schedules[0], StepKind::kAccumulate);
  schedules[0].buffers[static_cast<size_t>(add.copies[0].src)].dtype = DType::kBF16;
  EXPECT_FALSE(message(setting, schedules).empty());
}

TEST(Check, OAndLseAreCarriedTogether) {
  // A second fill of lse alone between two attend steps would forget what o still holds.
  const Setting setting = two_ranks("ring");
  std::vector<Schedule> schedules = schedules_of(setting, Direction::kForward);
  Schedule& schedule = schedules[0];
  const auto last = std::find_if(schedule.steps.rbegin(), schedule.steps.rend(),
                                 [](const Step& s) { return s.kind == StepKind::kAttend; });
  const BufferId lse = last->lse;
  const int64_t rows = schedule.buffers[static_cast<size_t>(lse)].rows;
  const auto id = static_cast<StepId>(schedule.steps.rend() - last) - 1;
  insert_step(schedule, id, {.kind = StepKind::kFill, .fills = {{lse, 0, rows}}});
  const std::string text = message(setting, schedules);
  EXPECT_NE(text.find("overwrites a partial result"), std::string::npos) << text;
}

TEST(Check, ContributionAfterTheResultWasTaken) {
  const Setting setting = two_ranks("all_gather");
  std::vector<Schedule> schedules = schedules_of(setting, Direction::kForward);
  Schedule& schedule = schedules[0];
  const auto attend = std::find_if(schedule.steps.begin(), schedule.steps.end(),
                                   [](const Step& s) { return s.kind == StepKind::kAttend; });
  // The part that comes last moves behind the copies to the outputs.
  Step late = *attend;
  late.parts.erase(late.parts.begin(), late.parts.end() - 1);
  attend->parts.pop_back();
  schedule.steps.push_back(std::move(late));
  const std::string text = message(setting, schedules);
  EXPECT_NE(text.find("already taken"), std::string::npos) << text;
}

TEST(Check, TransfersAreNotOrderedByTheList) {
  // Nothing says that a recv listed after the last use of its bytes starts after it.
  const Setting setting =
      setting_of("dtype=f32 heads=2/2 dim=8 lengths=64 mask=none", {.ranks = 6});
  std::vector<Schedule> schedules = schedules_of(setting, Direction::kForward);
  size_t reused = 0;
  for (Step& step : schedules[2].steps) {
    if (step.kind != StepKind::kSendRecv || step.after.empty()) continue;
    step.after.clear();
    ++reused;
  }
  ASSERT_GT(reused, 0u);
  const std::string text = message(setting, schedules);
  EXPECT_NE(text.find("does not wait for step"), std::string::npos) << text;
}

TEST(Check, DeadlockIsNamed) {
  const Setting setting = two_ranks("all_to_all");
  std::vector<Schedule> schedules = schedules_of(setting, Direction::kForward);
  testkit::Random random(1);
  const std::vector<Corruption> all = message_corruptions();
  const auto deadlock = std::find_if(all.begin(), all.end(), [](const Corruption& corruption) {
    return corruption.name == "deadlock";
  });
  ASSERT_TRUE(deadlock != all.end() && deadlock->plant(schedules, random));
  EXPECT_NE(message(setting, schedules).find("deadlock"), std::string::npos);
}

TEST(Check, IsNearLinear) {
  // All-pairs over 4,000 sequences' tiles would take minutes.
  std::string lengths = "16";
  for (int i = 1; i < 4000; ++i) lengths += "," + std::to_string(16 + i % 50);
  const Setting setting = setting_of("dtype=bf16 heads=4/2 dim=8 mask=causal lengths=" + lengths,
                                     {.partition = PartitionKind::kZigzag, .ranks = 4});
  const std::vector<Schedule> schedules = schedules_of(setting, Direction::kBackward);
  EXPECT_EQ(message(setting, schedules), "");
}

}  // namespace
}  // namespace longspan::test
