// all_gather whose attend step pulls: proved sound, in three steps, and wrong ones are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "engine/pulling.h"
#include "longspan/schedule.h"
#include "strategies/build.h"
#include "testkit/random_problem.h"

namespace longspan {
namespace {

using test::schedules_of;
using test::setting_of;
using testing::HasSubstr;
using testkit::Random;

Setting pulling(Problem problem, PartitionKind kind, int ranks) {
  Setting setting =
      setting_of(std::move(problem), {"all_gather", std::string(kNoStrategy), kind, ranks, 1});
  setting.whole = true;
  setting.pulls = true;
  return setting;
}

Setting pulling(const std::string& text, PartitionKind kind, int ranks) {
  return pulling(parse_problem(text).value(), kind, ranks);
}

const Step* step_of(const Schedule& schedule, StepKind kind) {
  const auto found = std::find_if(schedule.steps.begin(), schedule.steps.end(),
                                  [kind](const Step& step) { return step.kind == kind; });
  return found == schedule.steps.end() ? nullptr : &*found;
}

class Pulled : public testing::TestWithParam<int> {};

TEST_P(Pulled, IsSoundForRandomProblems) {
  const int ranks = GetParam();
  Random random(static_cast<uint64_t>(170 + ranks));
  int pulled = 0;
  constexpr int kProblems = 60;
  for (int i = 0; i < kProblems; ++i) {
    Problem problem = testkit::random_problem(random, {.sequences = 4, .length = 40});
    problem.sink = Sink::kNone;
    constexpr PartitionKind kKinds[] = {PartitionKind::kContiguous, PartitionKind::kZigzag,
                                        PartitionKind::kBalanced};
    const Setting setting = pulling(std::move(problem), random.one_of(kKinds), ranks);
    const std::vector<Schedule> schedules = schedules_of(setting, Direction::kForward);
    const bool all = std::all_of(schedules.begin(), schedules.end(),
                                 [](const Schedule& s) { return s.tiles.features.whole; });
    if (!all) continue;  // the engine then does without
    pulled += step_of(schedules[0], StepKind::kLend) != nullptr ? 1 : 0;
    const Status status = check(setting, schedules);
    ASSERT_TRUE(status.ok()) << status.error().text() << "\n" << setting.problem.text();
    double flops = 0;
    for (const Schedule& schedule : schedules) {
      flops += schedule.flops();
    }
    ASSERT_DOUBLE_EQ(flops, setting.problem.flops(Direction::kForward));
  }
  EXPECT_GT(pulled, kProblems / 2);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Pulled, testing::Values(2, 3, 4, 8));

constexpr const char* kCausal = "dtype=bf16 heads=4/2 dim=64 mask=causal lengths=1024";

TEST(Pulled, IsThreeSteps) {
  const Setting setting = pulling(kCausal, PartitionKind::kZigzag, 2);
  for (const Schedule& schedule : schedules_of(setting, Direction::kForward)) {
    ASSERT_EQ(schedule.steps.size(), 3u);
    EXPECT_EQ(schedule.steps[0].kind, StepKind::kLend);
    EXPECT_EQ(schedule.steps[1].kind, StepKind::kPull);
    EXPECT_EQ(schedule.steps[2].kind, StepKind::kAttend);
    EXPECT_EQ(schedule.steps[2].parts.size(), 1u);
    EXPECT_EQ(schedule.steps[2].parts[0].after, 1);
    EXPECT_TRUE(schedule.tiles.features.whole);
  }
}

TEST(Pulled, MovesWhatIsSeenAlone) {
  // Of two zigzag ranks the first lacks pieces 1 and 2 of 4, the second piece 0.
  const Setting setting = pulling(kCausal, PartitionKind::kZigzag, 2);
  const auto schedules = schedules_of(setting, Direction::kForward);
  constexpr int64_t kRowBytes = 2 * 2 * 64 * 2;
  EXPECT_EQ(schedules[0].bytes_sent(), 512 * kRowBytes);
  EXPECT_EQ(schedules[1].bytes_sent(), 256 * kRowBytes);
  const Setting window =
      pulling(std::string(kCausal) + " window=99,0", PartitionKind::kContiguous, 4);
  const auto halos = schedules_of(window, Direction::kForward);
  EXPECT_EQ(halos[0].bytes_sent(), 0);
  EXPECT_EQ(halos[1].bytes_sent(), 99 * kRowBytes);
  EXPECT_EQ(step_of(halos[3], StepKind::kPull)->readers, std::vector<int>());
  EXPECT_EQ(step_of(halos[2], StepKind::kPull)->readers, std::vector<int>{3});
}

TEST(Pulled, NamesWhereRowsComeFrom) {
  const Setting setting = pulling(kCausal, PartitionKind::kContiguous, 3);
  const Pulling pulling = pulling_of(schedules_of(setting, Direction::kForward)[1]);
  EXPECT_EQ(pulling.step, 1);
  ASSERT_EQ(pulling.lenders.size(), 1u);
  EXPECT_EQ(pulling.lenders[0].rank, 0);
  EXPECT_EQ(pulling.pulls, (std::vector<Pull>{{.lender = 0, .rows = 341},
                                              {.lender = kOwnRows, .dst_row = 341, .rows = 341}}));
}

struct Corruption {
  std::string found;
  std::function<void(Schedule&)> edit;  // of rank 1
};

TEST(Pulled, WrongOnesAreFound) {
  const Setting setting = pulling(kCausal, PartitionKind::kContiguous, 3);
  const std::vector<Corruption> corruptions = {
      {"is no reader of", [](Schedule& s) { s.steps[1].readers.clear(); }},
      {"does not pull from",
       [](Schedule& s) {
         s.steps[1].readers = {0, 2};
       }},
      {"holds token",
       [](Schedule& s) {
         ++s.steps[1].copies[0].src_row;
         --s.steps[1].copies[0].rows;
       }},
      {"is not what rank 2 lends",
       [](Schedule& s) {
         for (Buffer& b : s.buffers) b.peer = b.space == Space::kPeer ? 2 : b.peer;
       }},
      {"is of no peer",
       [](Schedule& s) {
         for (Buffer& b : s.buffers) b.peer = b.space == Space::kPeer ? 1 : b.peer;
       }},
      {"before", [](Schedule& s) { s.steps[1].copies.pop_back(); }},
      {"pull steps alone",
       [](Schedule& s) {
         s.steps.push_back({.kind = StepKind::kUnpack, .copies = {s.steps[1].copies[0]}});
       }},
      {"rows lie otherwise",
       [](Schedule& s) {
         s.steps[0].copies.push_back(s.steps[1].copies[0]);
         s.steps[1].copies.erase(s.steps[1].copies.begin());
       }},
      {"pulls are not allowed", [](Schedule&) {}},
  };
  for (const Corruption& corruption : corruptions) {
    std::vector<Schedule> schedules = schedules_of(setting, Direction::kForward);
    corruption.edit(schedules[1]);
    Setting allowed = setting;
    allowed.pulls = corruption.found != "pulls are not allowed";
    const Status status = check(allowed, schedules);
    ASSERT_FALSE(status.ok()) << corruption.found;
    EXPECT_THAT(status.error().message, HasSubstr(corruption.found));
  }
}

TEST(Pulled, IsPricedBesideTheTiles) {
  Setting setting =
      pulling("dtype=bf16 heads=32/8 dim=128 mask=causal lengths=65536", PartitionKind::kZigzag, 2);
  const auto seconds = [&] {
    double slowest = 0;
    for (const Cost& c : cost(schedules_of(setting, Direction::kForward), setting.topology, {})) {
      slowest = std::max(slowest, c.seconds);
    }
    return slowest;
  };
  const double pulled = seconds();
  setting.pulls = false;
  EXPECT_LT(pulled, seconds());
}

}  // namespace
}  // namespace longspan
