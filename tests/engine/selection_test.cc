// What an engine chooses, what it refuses, and what it remembers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/agreement.h"
#include "engine/refusals.h"
#include "longspan/routing_table.h"
#include "testkit/groups.h"

namespace longspan::testkit {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Engine> one_rank(Options options = {}) {
  return Engine::create(std::move(options), make_threads_communicators(Topology::blocks(1, 1))[0],
                        shared_device())
      .value();
}

Problem problem(const std::string& more = "") {
  return parse_problem("dtype=f32 heads=4/2 dim=8 lengths=20,10 mask=causal" + more).value();
}

Options routed(const std::string& forward, const std::string& backward = "auto") {
  Options options;
  options.forward.routing = parse_routing(forward).value();
  options.backward.routing = parse_routing(backward).value();
  return options;
}

TEST(Create, BadArguments) {
  const auto communicator = make_threads_communicators(Topology::blocks(1, 1))[0];
  expect_invalid(Engine::create({}, nullptr, shared_device()), "communicator is null");
  expect_invalid(Engine::create({}, communicator, Device{}), "no worker threads");
  Options options;
  options.score_bytes = -1;
  expect_invalid(Engine::create(options, communicator, shared_device()),
                 "score_bytes -1: at least 0");
  options.score_bytes = 0;
  options.deadline = std::chrono::milliseconds(0);
  expect_invalid(Engine::create(options, communicator, shared_device()), "deadline 0 ms");
  options = {};
  options.forward.strategy = "rings";
  expect_invalid(Engine::create(options, communicator, shared_device()),
                 "unknown strategy \"rings\"");
  options = {};
  options.partition = "halves";
  expect_invalid(Engine::create(options, communicator, shared_device()), "halves");
}

TEST(MakeSetting, IsWhatEnginesBuildFrom) {
  Options options;
  options.forward.strategy = options.backward.strategy = "all_to_all";
  options.partition = "striped";
  options.head_slices = 2;
  const Topology two = Topology::blocks(2, 1);
  const Problem halved =
      parse_problem("dtype=f32 heads=8/4 dim=8 lengths=20,10 mask=causal").value();
  Setting setting = make_setting(halved, two, shared_device(), options).value();
  setting.forward = setting.backward = "all_to_all";
  for_each_rank(make_threads_communicators(two), [&](std::shared_ptr<Communicator> communicator) {
    const int rank = communicator->rank();
    const auto engine = Engine::create(options, std::move(communicator), shared_device()).value();
    const auto call = engine->prepare(halved).value();
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      const Schedule built =
          find_strategy("all_to_all").value()->build(setting, direction, rank).value();
      EXPECT_EQ(built.queues(), 2);
      EXPECT_EQ(hash_schedule(built), hash_schedule(call->schedule(direction)));
    }
  });
}

const Device kGpu{.name = "cuda", .ordinal = 0, .capability = 90};

TEST(HeadSlices, AreChosenOnGpusWhereHeadsAreExchanged) {
  const Topology two = Topology::blocks(2, 1);
  const auto slices = [&](const std::string& more, const Device& device, int wanted = 0) {
    Options options;
    options.forward.strategy = options.backward.strategy = "all_to_all";
    options.head_slices = wanted;
    const std::string text = "dtype=bf16 heads=32/8 dim=128 mask=causal lengths=" + more;
    return explain(parse_problem(text).value(), two, device, options).value().head_slices;
  };
  EXPECT_EQ(slices("16384", kGpu), 2);
  EXPECT_EQ(slices("131072", kGpu), 1);  // less than a hundredth is left to gain
  EXPECT_EQ(slices("16384", kGpu, 1), 1);
  EXPECT_EQ(slices("16384", kGpu, 4), 4);
  EXPECT_EQ(slices("16384 sink=learnable", kGpu), 1);  // its gradients are sums over all heads
  EXPECT_EQ(slices("16384", shared_device()), 1);
  Options rings;
  rings.forward.strategy = rings.backward.strategy = "ring";
  EXPECT_EQ(explain(problem(), two, kGpu, rings).value().head_slices, 1);
}

TEST(MakeSetting, BackwardKeepsTheBytesOfScoresThatOptionsName) {
  Options options;
  options.score_bytes = int64_t{64} << 20;
  Setting setting = make_setting(problem(), Topology::blocks(1, 1), kGpu, options).value();
  setting.forward = setting.backward = "ring";
  const Strategy& ring = *find_strategy("ring").value();
  const auto kept = [&](Direction direction) {
    return ring.build(setting, direction, 0).value().tiles.score_bytes;
  };
  EXPECT_EQ(kept(Direction::kForward), 0);
  EXPECT_EQ(kept(Direction::kBackward), options.score_bytes);
}

TEST(MakeSetting, GpusWriteWholeResultsWhereLengthsAreKnown) {
  const Topology one = Topology::blocks(1, 1);
  EXPECT_FALSE(make_setting(problem(), one, shared_device(), {}).value().whole);
  EXPECT_TRUE(make_setting(problem(), one, kGpu, {}).value().whole);
  const Problem open = problem(" device_lengths=true");
  EXPECT_FALSE(make_setting(open, one, kGpu, {}).value().whole);
  Options promised;
  promised.promises = {Promise::kUniformLengths};
  EXPECT_TRUE(make_setting(open, one, kGpu, promised).value().whole);
  expect_invalid(make_setting(problem(), {}, kGpu, {}), "ranks 0: at least 1 is needed");
  promised.partition = "halves";
  expect_invalid(make_setting(problem(), one, kGpu, promised), "halves");
}

TEST(Refusal, Fp8IsDeclinedInBothDirections) {
  const auto call = one_rank()->prepare(problem(" fp8=current"));
  for (const char* direction : {"forward", "backward"}) {
    for (const char* provider : {"cpu/tiled", "cpu/reference"}) {
      expect_refused(call, ErrorCode::kUnsupported,
                     std::string(direction) + " " + provider + " declines (fp8): ");
    }
  }
  EXPECT_THAT(call.error().message, HasSubstr("fp8=current is not offered; remove fp8"));
  // A strategy that was passed over is not why this fails.
  EXPECT_THAT(call.error().message, testing::Not(HasSubstr("head_parallel")));
}

TEST(Refusal, PagesAreDeclinedInBackwardAlone) {
  const auto call = one_rank()->prepare(problem(" page=4"));
  for (const char* provider : {"cpu/tiled", "cpu/reference"}) {
    expect_refused(call, ErrorCode::kUnsupported,
                   std::string("backward ") + provider + " declines (page): ");
  }
  EXPECT_THAT(call.error().message, testing::Not(HasSubstr("forward cpu")));
  EXPECT_THAT(call.error().message, HasSubstr("ask for forward alone"));
}

TEST(Refusal, AHybridThatDoesNotFit) {
  Options options;
  options.forward.strategy = "hybrid";
  for_each_rank(make_threads_communicators(Topology::blocks(3, 2)),
                [&](std::shared_ptr<Communicator> communicator) {
                  const auto engine =
                      Engine::create(options, std::move(communicator), shared_device()).value();
                  expect_refused(
                      engine->prepare(problem()), ErrorCode::kUnsupported,
                      "forward hybrid declines (topology): 3 ranks do not divide over 2 nodes");
                });
}

TEST(Routing, Require) {
  const auto call =
      one_rank(routed("require:cpu/reference", "require:cpu/tiled"))->prepare(problem());
  ASSERT_TRUE(call.ok());
  EXPECT_EQ((*call)->explanation().forward.provider->name(), "cpu/reference");
  EXPECT_EQ((*call)->explanation().forward.provider_reason, "required");
  EXPECT_EQ((*call)->explanation().backward.provider->name(), "cpu/tiled");
}

TEST(Routing, Prefer) {
  const auto call = one_rank(routed("prefer:cpu/reference"))->prepare(problem());
  ASSERT_TRUE(call.ok());
  EXPECT_EQ((*call)->explanation().forward.provider->name(), "cpu/reference");
  EXPECT_EQ((*call)->explanation().forward.provider_reason, "preferred");
  EXPECT_EQ((*call)->explanation().backward.provider->name(), "cpu/tiled");
}

TEST(Routing, Off) {
  const auto call = one_rank(routed("off:cpu/tiled"))->prepare(problem());
  ASSERT_TRUE(call.ok());
  const Selection& forward = (*call)->explanation().forward;
  EXPECT_EQ(forward.provider->name(), "cpu/reference");
  // head_parallel, the providers of other devices, and the one that is off
  ASSERT_EQ(forward.declines.size(), 1 + providers().size() - 1);
  EXPECT_EQ(forward.declines.back().name, "cpu/tiled");
  EXPECT_EQ(forward.declines.back().decline.code, DeclineCode::kOff);
}

TEST(Routing, RequireNeverFallsBack) {
  expect_refused(one_rank(routed("require:cpu/tiled"))->prepare(problem(" fp8=mxfp8")),
                 ErrorCode::kUnsupported, "cpu/tiled declines (fp8)");
}

TEST(Routing, AutomaticChoicesGoByTheTable) {
  const auto row = [](Direction direction) {
    return RoutingRow{.measured = {.device = "cpu",
                                   .direction = direction,
                                   .dtype = DType::kF32,
                                   .dim = 8,
                                   .dim_v = 8,
                                   .mask = MaskClass::kCausal,
                                   .packed = true,
                                   .length = 64},
                      .times = {{"cpu/reference", 60}, {"cpu/tiled", 80}}};
  };
  Options options;
  options.routing_table = std::make_shared<RoutingTable>(
      RoutingTable{.fingerprint = {}, .rows = {row(Direction::kForward)}});
  const auto call = one_rank(options)->prepare(problem());
  ASSERT_TRUE(call.ok());
  const Explanation& explanation = (*call)->explanation();
  EXPECT_EQ(explanation.forward.provider->name(), "cpu/reference");
  EXPECT_EQ(explanation.forward.provider_reason, "measured table: cpu/reference 0.75 of cpu/tiled");
  EXPECT_EQ(explanation.backward.provider->name(), "cpu/tiled");
  EXPECT_EQ(explanation.backward.provider_reason, "best that offers");
}

TEST(Selection, AutoNamesWhatItTook) {
  const auto calls = prepare_group({.problem = problem().text(),
                                    .ranks = 4,
                                    .forward = "auto",
                                    .backward = "auto",
                                    .partition = "auto"});
  ASSERT_TRUE(calls.ok()) << calls.error().text();
  for (const auto& call : *calls) {
    const Explanation& explanation = call->explanation();
    EXPECT_TRUE(explanation.ok());
    EXPECT_THAT(explanation.forward.strategy_reason, HasSubstr("least modelled time"));
    EXPECT_FALSE(explanation.partition_reason.empty());
    EXPECT_EQ(explanation.forward.strategy, calls->front()->explanation().forward.strategy);
    EXPECT_EQ(call->schedule(Direction::kForward).strategy, explanation.forward.strategy->name);
  }
}

TEST(Cache, ASecondPrepareIsTheSameCall) {
  const auto engine = one_rank();
  const auto first = engine->prepare(problem()).value();
  const CacheStatistics before = engine->cache_statistics();
  EXPECT_EQ(engine->prepare(problem()).value(), first);
  EXPECT_NE(engine->prepare(problem(" scale=0.1")).value(), first);
  EXPECT_EQ(engine->prepare(problem()).value(), first);
  const CacheStatistics after = engine->cache_statistics();
  EXPECT_EQ(after.builds, before.builds);  // the scale is in no plan key
  EXPECT_EQ(after.hits, before.hits + 2);  // forward and backward of the other scale
}

TEST(Cache, AProblemThatCodeFilledIn) {
  const auto engine = one_rank();
  Problem by_hand = problem();
  by_hand.capacity = {};
  const auto first = engine->prepare(by_hand).value();
  EXPECT_EQ(engine->prepare(by_hand).value(), first);
}

TEST(Cache, WarmPreparesTalkToNobody) {
  Options options;
  options.deadline = std::chrono::milliseconds(2000);
  for_each_rank(make_threads_communicators(Topology::blocks(2, 1)),
                [&](std::shared_ptr<Communicator> communicator) {
                  const int rank = communicator->rank();
                  const auto engine =
                      Engine::create(options, std::move(communicator), shared_device()).value();
                  const auto first = engine->prepare(problem()).value();
                  for (int i = 0; rank == 0 && i < 3; ++i)
                    EXPECT_EQ(engine->prepare(problem()).value(), first);
                });
}

TEST(Cache, StatisticsCountPlansHitsAndEvictions) {
  Options options;
  options.plans = make_plan_cache(2);
  const auto engine = one_rank(options);
  const auto count = [&] { return statistics(*options.plans); };
  ASSERT_TRUE(engine->prepare(problem()).ok());
  EXPECT_EQ(count().builds, 2);  // forward and backward
  EXPECT_LE(count().size, 2);
  const auto wide = parse_problem("dtype=f32 heads=4/2 dim=16 lengths=20,10 mask=causal").value();
  ASSERT_TRUE(engine->prepare(wide).ok());
  EXPECT_EQ(count().builds, 4);
  EXPECT_GT(count().evictions, 0);
  EXPECT_LE(count().size, 2);
  ASSERT_FALSE(engine->prepare(problem(" fp8=delayed")).ok());
  EXPECT_GT(count().declines, 0);
}

TEST(Cache, EnginesShareOne) {
  Options options;
  options.plans = make_plan_cache();
  ASSERT_TRUE(one_rank(options)->prepare(problem()).ok());
  const int64_t builds = statistics(*options.plans).builds;
  ASSERT_TRUE(one_rank(options)->prepare(problem()).ok());
  EXPECT_EQ(statistics(*options.plans).builds, builds);
  EXPECT_EQ(statistics(*options.plans).hits, 2);
}

}  // namespace
}  // namespace longspan::testkit
