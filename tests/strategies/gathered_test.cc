// all_gather's backward over gathered keys: one part with whole gradients, proved sound, and wrong
// ones are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "longspan/schedule.h"
#include "strategies/build.h"
#include "testkit/random_problem.h"

namespace longspan {
namespace {

using test::schedules_of;
using test::setting_of;
using testing::HasSubstr;
using testkit::Random;

Setting gathering(Problem problem, PartitionKind kind, int ranks) {
  Setting setting = setting_of(std::move(problem), {"all_gather", "all_gather", kind, ranks, 1});
  setting.whole = true;
  setting.gathers_whole = true;
  return setting;
}

Setting gathering(const std::string& text, PartitionKind kind, int ranks) {
  return gathering(parse_problem(text).value(), kind, ranks);
}

constexpr const char* kWindow = "dtype=bf16 heads=4/2 dim=64 mask=causal window=255,0 lengths=4096";
constexpr const char* kPacks =
    "dtype=f16 heads=4/2 dim=64 dim_v=32 mask=causal lengths=900,300,800,1,1400";

class Gathered : public testing::TestWithParam<int> {};

void expect_sound(const Setting& setting, const std::vector<Schedule>& schedules) {
  const Status status = check(setting, schedules);
  ASSERT_TRUE(status.ok()) << status.error().text() << "\n" << setting.problem.text();
  double flops = 0;
  for (const Schedule& schedule : schedules) flops += schedule.flops();
  ASSERT_DOUBLE_EQ(flops, setting.problem.flops(Direction::kBackward));
}

/// Ranks of one schedule may be whole where others are not: what they exchange is the same.
TEST_P(Gathered, IsSoundForRandomProblems) {
  const int ranks = GetParam();
  Random random(static_cast<uint64_t>(210 + ranks));
  int gathered = 0;
  constexpr int kProblems = 150;
  for (int i = 0; i < kProblems; ++i) {
    const int64_t length = random.chance(0.5) ? 40 : 400;
    Problem problem = testkit::random_problem(random, {.sequences = 4, .length = length});
    problem.sink = Sink::kNone;
    constexpr PartitionKind kKinds[] = {PartitionKind::kContiguous, PartitionKind::kBalanced,
                                        PartitionKind::kZigzag, PartitionKind::kStriped};
    const Setting setting = gathering(std::move(problem), random.one_of(kKinds), ranks);
    const std::vector<Schedule> schedules = schedules_of(setting, Direction::kBackward);
    ASSERT_NO_FATAL_FAILURE(expect_sound(setting, schedules));
    gathered +=
        static_cast<int>(std::count_if(schedules.begin(), schedules.end(),
                                       [](const Schedule& s) { return s.tiles.features.whole; }));
  }
  EXPECT_GT(gathered, kProblems * ranks / 4);
}

TEST_P(Gathered, WindowsAndPacksAreOnePart) {
  for (const Setting& setting : {gathering(kWindow, PartitionKind::kContiguous, GetParam()),
                                 gathering(kPacks, PartitionKind::kBalanced, GetParam())}) {
    const std::vector<Schedule> schedules = schedules_of(setting, Direction::kBackward);
    ASSERT_NO_FATAL_FAILURE(expect_sound(setting, schedules));
    for (const Schedule& schedule : schedules) {
      EXPECT_TRUE(schedule.tiles.features.whole);
      size_t parts = 0;
      for (const Step& step : schedule.steps) {
        EXPECT_NE(step.kind, StepKind::kDelta);
        EXPECT_EQ(step.delta, kNone);
        parts += step.parts.size();
      }
      EXPECT_LE(parts, 1u);
    }
  }
}

TEST_P(Gathered, SendsWhatItWouldSendWithout) {
  for (const auto& [text, kind] :
       {std::pair{kWindow, PartitionKind::kContiguous}, {kPacks, PartitionKind::kBalanced}}) {
    Setting setting = gathering(text, kind, GetParam());
    const std::vector<Schedule> whole = schedules_of(setting, Direction::kBackward);
    setting.gathers_whole = false;
    const std::vector<Schedule> added = schedules_of(setting, Direction::kBackward);
    for (size_t rank = 0; rank < whole.size(); ++rank) {
      EXPECT_EQ(whole[rank].bytes_sent(), added[rank].bytes_sent()) << text << ", rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Gathered, testing::Values(2, 3, 4, 8));

TEST(Gathered, RowsThatNobodyElseUsesGoStraight) {
  const Setting setting = gathering(kWindow, PartitionKind::kContiguous, 2);
  const std::vector<Schedule> schedules = schedules_of(setting, Direction::kBackward);
  int64_t straight = 0;
  int64_t summed = 0;
  for (const Step& step : schedules[0].steps) {
    if (step.kind != StepKind::kUnpack) continue;
    for (const Copy& copy : step.copies) {
      const Buffer& src = schedules[0].buffers[static_cast<size_t>(copy.src)];
      const Buffer& dst = schedules[0].buffers[static_cast<size_t>(copy.dst)];
      if (dst.quantity != Quantity::kDk || dst.space != Space::kOperand) continue;
      (src.dtype == DType::kF32 ? summed : straight) += copy.rows;
    }
  }
  EXPECT_EQ(summed, 255);
  EXPECT_EQ(straight, 2048 - 255);
}

TEST(Gathered, QueryAndKeyRowsMustBeApart) {
  // Two pieces of the first zigzag rank see the same keys; short rows need O in FP32.
  for (const Setting& setting : {gathering("dtype=bf16 heads=4/2 dim=64 mask=causal lengths=4096",
                                           PartitionKind::kZigzag, 2),
                                 gathering("dtype=bf16 heads=4/2 dim=64 mask=causal lengths=32",
                                           PartitionKind::kContiguous, 2)}) {
    const std::vector<Schedule> schedules = schedules_of(setting, Direction::kBackward);
    EXPECT_FALSE(schedules[0].tiles.features.whole);
    EXPECT_TRUE(check(setting, schedules).ok());
  }
}

struct Corruption {
  std::string found;
  StepKind kind;
  std::function<void(Schedule&, Step&)> edit;  // of the first such step of rank 1
};

TEST(Gathered, WrongOnesAreFound) {
  const Setting setting = gathering(kWindow, PartitionKind::kContiguous, 3);
  const std::vector<Corruption> corruptions = {
      {"before it was written", StepKind::kUnpack,
       [](Schedule&, Step& step) { step.copies.pop_back(); }},
      {"holds token", StepKind::kUnpack,
       [](Schedule&, Step& step) {
         ++step.copies[0].src_row;
         --step.copies[0].rows;
       }},
      {"must be bf16", StepKind::kAttendBackward,
       [](Schedule& s, Step& step) {
         s.buffers[static_cast<size_t>(step.parts[0].dk)].dtype = DType::kF32;
       }},
      {"a partial result reaches nobody", StepKind::kAccumulate,
       [](Schedule&, Step& step) { step.copies.pop_back(); }},
      {"takes rounded", StepKind::kPack, [](Schedule&, Step&) {}},
  };
  for (const Corruption& corruption : corruptions) {
    std::vector<Schedule> schedules = schedules_of(setting, Direction::kBackward);
    std::vector<Step>& steps = schedules[1].steps;
    const auto step = std::find_if(steps.begin(), steps.end(),
                                   [&](const Step& s) { return s.kind == corruption.kind; });
    ASSERT_NE(step, steps.end());
    corruption.edit(schedules[1], *step);
    Setting allowed = setting;
    allowed.gathers_whole = corruption.found != "takes rounded";
    const Status status = check(allowed, schedules);
    ASSERT_FALSE(status.ok()) << corruption.found;
    EXPECT_THAT(status.error().message, HasSubstr(corruption.found));
  }
}

TEST(Gathered, IsPricedByItsCopies) {
  Setting setting =
      gathering("dtype=bf16 heads=32/8 dim=128 mask=causal window=4096,0 lengths=65536",
                PartitionKind::kContiguous, 2);
  const auto seconds = [&](const Rates& rates) {
    double slowest = 0;
    for (const Cost& c : cost(schedules_of(setting, Direction::kBackward), setting.topology, rates))
      slowest = std::max(slowest, c.seconds);
    return slowest;
  };
  Rates slow;  // memory so slow that copies are all
  slow.memory_bytes = 1e9;
  const double whole = seconds({});
  const double whole_in_slow = seconds(slow);
  EXPECT_GT(whole_in_slow, 2 * whole);
  setting.gathers_whole = false;
  EXPECT_LT(whole, seconds({}));
  EXPECT_LT(whole_in_slow, seconds(slow));
}

}  // namespace
}  // namespace longspan
