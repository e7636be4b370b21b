// Every strategy's schedules are proved sound over ranks, masks, partitions, lengths and heads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "longspan/schedule.h"
#include "strategies/build.h"
#include "testkit/random_problem.h"

namespace longspan {
namespace {

using test::Choice;
using test::schedules_of;
using test::setting_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testkit::Random;

constexpr const char* kForwards[] = {"ring", "all_gather", "all_to_all", "hybrid"};
constexpr const char* kBackwards[] = {"ring", "all_gather", "all_to_all", "hybrid",
                                      "head_parallel"};
constexpr int kSlices[] = {1, 2, 4};
constexpr PartitionKind kKinds[] = {PartitionKind::kContiguous, PartitionKind::kZigzag,
                                    PartitionKind::kStriped, PartitionKind::kBalanced};

std::string text_of(const Setting& setting) {
  return setting.problem.text() + " | " + setting.forward + " / " + setting.backward + ", " +
         std::string(name(setting.partition.kind())) + ", " +
         std::to_string(setting.topology.ranks()) + " ranks, " +
         std::to_string(setting.topology.nodes()) + " nodes, " +
         std::to_string(setting.head_slices) + " slices" + (setting.whole ? ", whole" : "");
}

/// Proves the schedules, and that nothing was computed twice or left out.
void expect_sound(const Setting& setting, Direction direction) {
  const std::vector<Schedule> schedules = schedules_of(setting, direction);
  const Status status = check(setting, schedules);
  ASSERT_TRUE(status.ok()) << status.error().text() << "\n" << text_of(setting);
  double flops = 0;
  for (const Schedule& schedule : schedules) {
    flops += schedule.flops();
    for (const Step& step : schedule.steps) {
      for (const Part& part : step.parts) {
        ASSERT_GT(part.tiles.size(), 0u);
        const Buffer& keys = schedule.buffers[static_cast<size_t>(part.k)];
        ASSERT_LE(keys.rows, schedule.tiles.capacity_k) << text_of(setting);
      }
    }
  }
  ASSERT_DOUBLE_EQ(flops, setting.problem.flops(direction)) << text_of(setting);
}

/// Nodes that divide the ranks, so that every strategy offers.
int random_nodes(Random& random, int ranks) {
  constexpr int kNodes[] = {1, 2, 4};
  const int nodes = random.one_of(kNodes);
  return ranks % nodes == 0 ? nodes : 1;
}

class Strategies : public testing::TestWithParam<int> {};

TEST_P(Strategies, AreSoundForRandomProblems) {
  const int ranks = GetParam();
  Random random(static_cast<uint64_t>(70 + ranks));
  for (const char* forward : kForwards) {
    for (const char* backward : kBackwards) {
      for (const PartitionKind kind : kKinds) {
        for (int mask = 0; mask < 3; ++mask) {
          Problem problem = testkit::random_problem(
              random, {.sequences = 5, .length = random.chance(1.0 / 3) ? 4 : 30});
          problem.mask = mask == 0 ? MaskKind::kNone : MaskKind::kCausal;
          problem.align = mask == 2 ? Align::kBottomRight : Align::kTopLeft;
          Setting setting = setting_of(
              std::move(problem), {forward, backward, kind, ranks, random_nodes(random, ranks)});
          setting.whole = random.chance(0.5);
          setting.head_slices = random.one_of(kSlices);
          expect_sound(setting, Direction::kForward);
          expect_sound(setting, Direction::kBackward);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Buffers that forward keeps, or that backward takes over, in order.
std::vector<std::string> saved(const Schedule& schedule) {
  std::vector<std::string> names;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.space == Space::kSaved)
      names.push_back(buffer.name + " " + std::string(name(buffer.dtype)));
  }
  return names;
}

size_t count(const Schedule& schedule, StepKind kind) {
  return static_cast<size_t>(std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                           [kind](const Step& step) { return step.kind == kind; }));
}

TEST_P(Strategies, BackwardTakesWhatForwardKeeps) {
  const int ranks = GetParam();
  for (const char* forward : kForwards) {
    for (const char* backward : kBackwards) {
      for (const char* lengths : {"512,300", "8,3"}) {
        for (const int slices : kSlices) {
          Setting setting =
              setting_of(std::string("dtype=bf16 heads=32/8 dim=16 mask=causal lengths=") + lengths,
                         {forward, backward, PartitionKind::kZigzag, ranks, 1});
          setting.whole = true;
          setting.head_slices = slices;
          expect_sound(setting, Direction::kForward);
          expect_sound(setting, Direction::kBackward);
          EXPECT_EQ(saved(schedules_of(setting, Direction::kForward)[0]),
                    saved(schedules_of(setting, Direction::kBackward)[0]))
              << text_of(setting);
        }
      }
    }
  }
}

TEST(Whole, OneRankWithoutGapsIsOneStep) {
  Setting setting = setting_of("dtype=bf16 heads=4/2 dim=16 mask=causal lengths=300,500", {});
  setting.whole = true;
  EXPECT_EQ(schedules_of(setting, Direction::kForward)[0].steps.size(), 1u);
  EXPECT_EQ(schedules_of(setting, Direction::kBackward)[0].steps.size(), 1u);
  EXPECT_TRUE(schedules_of(setting, Direction::kForward)[0].tiles.features.whole);
}

TEST(Whole, QueriesWithoutKeysAreFilled) {
  Setting setting =
      setting_of("dtype=f32 heads=2/2 dim=8 mask=bottom_right lengths=9,4 kv_lengths=5,0", {});
  setting.whole = true;
  const Schedule forward = schedules_of(setting, Direction::kForward)[0];
  EXPECT_EQ(count(forward, StepKind::kFill), 1u);
  ASSERT_TRUE(check(setting, {{forward}}).ok());
}

TEST(Whole, ShortRowsKeepAnExactO) {
  for (const char* lengths : {"100", "200"}) {  // 50 and 100 keys a query
    Setting setting =
        setting_of(std::string("dtype=bf16 heads=2/2 dim=8 mask=causal lengths=") + lengths, {});
    setting.whole = true;
    const bool exact = lengths[0] == '1';
    EXPECT_EQ(saved(schedules_of(setting, Direction::kForward)[0]).size(), exact ? 1u : 0u);
  }
}

TEST(Slices, OneComputesWhileAnotherMoves) {
  Setting setting = setting_of("dtype=bf16 heads=16/8 dim=16 mask=causal lengths=1024",
                               {"all_to_all", "all_to_all", PartitionKind::kZigzag, 2, 1});
  setting.whole = true;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    setting.head_slices = 1;
    const std::vector<Schedule> one = schedules_of(setting, direction);
    setting.head_slices = 4;
    const std::vector<Schedule> four = schedules_of(setting, direction);
    EXPECT_EQ(one[0].bytes_sent(), four[0].bytes_sent());
    const StepKind attend =
        direction == Direction::kForward ? StepKind::kAttend : StepKind::kAttendBackward;
    EXPECT_EQ(count(four[0], attend), 4u);
    Rates slow;
    slow.node_bytes = 1e9;
    slow.forward_flops = slow.backward_flops = 1e12;
    EXPECT_LT(cost(four, setting.topology, slow)[0].seconds,
              0.85 * cost(one, setting.topology, slow)[0].seconds);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Strategies, testing::Range(1, 9));

TEST(StrategiesOf, HybridOverAllNodesAndHeadCounts) {
  Random random(79);
  for (const int ranks : {2, 4, 6, 8, 12}) {
    for (const int nodes : {1, 2, 4}) {
      if (ranks % nodes != 0) continue;
      for (int i = 0; i < 12; ++i) {
        const Setting setting =
            setting_of(testkit::random_problem(random),
                       {"hybrid", "hybrid", random.one_of(kKinds), ranks, nodes});
        expect_sound(setting, Direction::kForward);
        expect_sound(setting, Direction::kBackward);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(StrategiesOf, OneLongSequenceAndOneToken) {
  for (const char* lengths : {"4096", "1", "0", "2999", "0,0,1,0"}) {
    for (const char* backward : kBackwards) {
      const Setting setting =
          setting_of(std::string("dtype=bf16 heads=8/2 dim=64 mask=causal lengths=") + lengths,
                     {backward == std::string("head_parallel") ? "ring" : backward, backward,
                      PartitionKind::kZigzag, 4, 2});
      expect_sound(setting, Direction::kForward);
      expect_sound(setting, Direction::kBackward);
    }
  }
}

TEST(StrategiesOf, ManyPackedSequences) {
  Random random(80);
  const Problem problem = testkit::random_problem(random, {.sequences = 300, .length = 40});
  for (const char* backward : kBackwards) {
    const Setting setting =
        setting_of(problem, {"all_gather", backward, PartitionKind::kBalanced, 8, 2});
    expect_sound(setting, Direction::kForward);
    expect_sound(setting, Direction::kBackward);
  }
}

TEST(Consider, HeadParallelIsBackwardOnly) {
  const Setting setting = setting_of("dtype=f32 heads=4/4 dim=8 lengths=32", {.ranks = 2});
  const Strategy& strategy = **find_strategy("head_parallel");
  const Verdict forward = strategy.consider(setting, Direction::kForward);
  ASSERT_NE(declined(forward), nullptr);
  EXPECT_EQ(declined(forward)->code, DeclineCode::kDirection);
  EXPECT_THAT(declined(forward)->detail, HasSubstr("use all_to_all forward"));
  EXPECT_EQ(declined(strategy.consider(setting, Direction::kBackward)), nullptr);
  const Result<Schedule> built = strategy.build(setting, Direction::kForward, 0);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().code, ErrorCode::kUnsupported);
}

TEST(Consider, HybridNeedsEqualBlocksOfRanks) {
  const std::string text = "dtype=f32 heads=4/4 dim=8 lengths=32";
  const Strategy& hybrid = **find_strategy("hybrid");
  const Verdict uneven =
      hybrid.consider(setting_of(text, {.ranks = 5, .nodes = 2}), Direction::kForward);
  ASSERT_NE(declined(uneven), nullptr);
  EXPECT_EQ(declined(uneven)->code, DeclineCode::kTopology);
  EXPECT_THAT(declined(uneven)->detail, HasSubstr("5 ranks do not divide over 2 nodes"));
  Setting robin = setting_of(text, {.ranks = 4, .nodes = 2});
  robin.topology.node_of_rank = {0, 1, 0, 1};
  const Verdict scattered = hybrid.consider(robin, Direction::kForward);
  ASSERT_NE(declined(scattered), nullptr);
  EXPECT_THAT(declined(scattered)->detail, HasSubstr("rank 1 is on node 1"));
  EXPECT_EQ(
      declined(hybrid.consider(setting_of(text, {.ranks = 6, .nodes = 3}), Direction::kForward)),
      nullptr);
}

TEST(Consider, TheOthersTakeAnything) {
  Random random(81);
  for (int i = 0; i < 50; ++i) {
    const int ranks = static_cast<int>(random.between(1, 9));
    Problem problem = testkit::random_problem(random);
    problem.invariant = false;
    const Setting setting = setting_of(std::move(problem), {.ranks = ranks, .nodes = 1});
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      for (const char* strategy : {"ring", "all_gather", "all_to_all", "hybrid"}) {
        const Verdict verdict = (*find_strategy(strategy))->consider(setting, direction);
        ASSERT_EQ(declined(verdict), nullptr) << strategy;
        ASSERT_FALSE(std::get<Offer>(verdict).detail.empty());
      }
    }
  }
}

TEST(Consider, InvariantProblemsNeedWholeSumsOnOneRank) {
  const std::string text = "dtype=f32 heads=4/4 dim=8 lengths=32 invariant=true";
  const auto verdict = [&](const char* strategy, const Choice& choice, Direction direction) {
    return (*find_strategy(strategy))->consider(setting_of(text, choice), direction);
  };
  for (const char* strategy : {"ring", "all_gather", "hybrid"}) {
    const Verdict split = verdict(strategy, {.ranks = 4, .nodes = 2}, Direction::kForward);
    ASSERT_NE(declined(split), nullptr) << strategy;
    EXPECT_EQ(declined(split)->code, DeclineCode::kInvariant);
    EXPECT_THAT(declined(split)->detail, HasSubstr("use all_to_all"));
    EXPECT_EQ(declined(verdict(strategy, {.ranks = 1}, Direction::kForward)), nullptr);
  }
  EXPECT_EQ(declined(verdict("hybrid", {.ranks = 4}, Direction::kForward)), nullptr);
  EXPECT_EQ(declined(verdict("all_to_all", {.ranks = 8}, Direction::kForward)), nullptr);
  EXPECT_EQ(declined(verdict("head_parallel", {.ranks = 8}, Direction::kBackward)), nullptr);
}

TEST(StrategyList, IsFoundByName) {
  std::vector<std::string_view> names;
  for (const Strategy* strategy : strategies()) {
    names.push_back(strategy->name);
    EXPECT_EQ(*find_strategy(strategy->name), strategy);
    EXPECT_FALSE(strategy->summary.empty());
  }
  EXPECT_THAT(names, ElementsAre("ring", "all_gather", "all_to_all", "hybrid", "head_parallel"));
  const Result<const Strategy*> unknown = find_strategy("ulysses");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message,
            "unknown strategy \"ulysses\"; one of auto, ring, all_gather, all_to_all, hybrid, "
            "head_parallel");
}

}  // namespace
}  // namespace longspan
