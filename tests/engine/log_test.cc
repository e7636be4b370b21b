// What an engine tells its log, and when it is silent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/opened.h"
#include "engine/refusals.h"
#include "longspan/libraries.h"
#include "testkit/flight.h"
#include "testkit/groups.h"

namespace longspan::testkit {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kProblem = "dtype=f32 heads=4/2 dim=8 lengths=20,10 mask=causal";

/// All messages as "LEVEL: TEXT".
class Lines {
 public:
  Log log() {
    return [this](LogLevel level, std::string_view message) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(std::string(name(level)) + ": " + std::string(message));
    };
  }
  /// Those since the last call.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::unique_ptr<Engine> one_rank(Options options) {
  return Engine::create(std::move(options), make_threads_communicators(Topology::blocks(1, 1))[0],
                        shared_device())
      .value();
}

TEST(Log, TellsOfAColdCallAndNothingOfWarmOnes) {
  Lines lines;
  Options options;
  options.log = lines.log();
  const auto engine = one_rank(options);
  const tool::Inputs inputs = inputs_of({.problem = kProblem});
  EXPECT_TRUE(lines.take().empty());
  Flight flight = make_flight(inputs, engine->prepare(inputs.problem).value(), 0);
  const std::vector<std::string> cold = lines.take();
  for (const char* text :
       {"info: rank 0: partition zigzag (causal",
        "info: rank 0: forward strategy ring (one rank: nothing moves), provider cpu/tiled (best",
        "info: rank 0: backward strategy ring", "info: rank 0: 2 plans built", "prepared in"}) {
    EXPECT_THAT(cold, Contains(HasSubstr(text)));
  }
  EXPECT_THAT(cold, Contains(AllOf(HasSubstr("bytes of workspace"), HasSubstr(kProblem))));
  Stream stream;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(engine->prepare(inputs.problem).ok());
    ASSERT_TRUE(forward(*engine, flight).ok());
    ASSERT_TRUE(backward(*engine, flight).ok());
    ASSERT_TRUE(engine->synchronize(stream).ok());
  }
  EXPECT_TRUE(lines.take().empty());
}

TEST(Log, WarnsOfAProviderThatWasNotPreferred) {
  Lines lines;
  Options options;
  options.log = lines.log();
  options.forward.routing = parse_routing("prefer:cudnn").value();
  options.backward.routing = parse_routing("prefer:cpu/reference").value();
  ASSERT_TRUE(one_rank(options)->prepare(parse_problem(kProblem).value()).ok());
  const std::vector<std::string> told = lines.take();
  EXPECT_THAT(told, Contains(AllOf(HasSubstr("warning: rank 0: forward"), HasSubstr("cpu/tiled"),
                                   HasSubstr("preferred cudnn declined: "))));
  EXPECT_THAT(told, Contains(HasSubstr("info: rank 0: backward")));
  EXPECT_THAT(told, Contains(HasSubstr("provider cpu/reference (preferred)")));
}

TEST(Log, WarnsOfEvictionsAndTellsOfForgottenCalls) {
  Lines lines;
  Options options;
  options.log = lines.log();
  options.plans = make_plan_cache(1);
  const auto engine = one_rank(options);
  ASSERT_TRUE(engine->prepare(parse_problem(kProblem).value()).ok());
  EXPECT_THAT(lines.take(), Contains(AllOf(HasSubstr("warning: rank 0: "),
                                           HasSubstr("evicted from the plan cache of 1;"))));
  for (int tokens = 1; tokens <= 64; ++tokens) {
    Problem other = parse_problem(kProblem).value();
    other.lengths.sequences[0].q_length = other.lengths.sequences[0].k_length = 20 - tokens % 20;
    other.scale = 1.0 / tokens;
    ASSERT_TRUE(engine->prepare(other).ok());
  }
  EXPECT_THAT(lines.take(), Contains(HasSubstr("a call is forgotten, the last 64 are kept")));
}

TEST(Log, TellsOnceOfEachLibrary) {
  note_opened("libnothing 1.2.3 (/nowhere/libnothing.so)");
  note_opened("libnothing 1.2.3 (/nowhere/libnothing.so)");
  EXPECT_EQ(opened_libraries(),
            std::vector<std::string>{"libnothing 1.2.3 (/nowhere/libnothing.so)"});
  Lines lines;
  Options options;
  options.log = lines.log();
  const auto engine = one_rank(options);
  ASSERT_TRUE(engine->prepare(parse_problem(kProblem).value()).ok());
  EXPECT_THAT(lines.take(),
              Contains("info: rank 0: opened libnothing 1.2.3 (/nowhere/libnothing.so)"));
  Problem other = parse_problem(kProblem).value();
  other.scale = 2;
  ASSERT_TRUE(engine->prepare(other).ok());
  EXPECT_THAT(lines.take(), Not(Contains(HasSubstr("libnothing"))));
}

TEST(Log, TellsOfAGuardThatFailed) {
  const std::string text = std::string(kProblem) + " device_lengths=true";
  Lines lines;
  Options options;
  options.log = lines.log();
  const auto engine = one_rank(options);
  const std::vector<int32_t> good = {20, 10}, bad = {20, 11};
  const tool::Inputs inputs = inputs_of({.problem = text}, good, good);
  Flight flight = make_flight(inputs, engine->prepare(inputs.declared()).value(), 0);
  lines.take();
  flight.side.lengths = {.q = bad, .k = good};
  expect_refused(forward(*engine, flight), ErrorCode::kGuardFailed, "lengths_q");
  const std::vector<std::string> told = lines.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], HasSubstr("error: rank 0: guard_failed"));
  EXPECT_THAT(told[0], HasSubstr("lengths_q of sequence 1 is 11; it must be 0 to 10"));
}

TEST(Log, TellsOnceOfALostPeer) {
  const Case c{.problem = kProblem, .ranks = 2, .forward = "all_gather", .backward = "all_gather"};
  const tool::Inputs inputs = inputs_of(c);
  Lines lines;
  for_each_rank(make_threads_communicators(Topology::blocks(2, 1)),
                [&](std::shared_ptr<Communicator> communicator) {
                  const int rank = communicator->rank();
                  Options options = options_of(c);
                  if (rank == 0) options.log = lines.log();
                  const auto engine =
                      Engine::create(options, std::move(communicator), shared_device()).value();
                  Flight flight =
                      make_flight(inputs, engine->prepare(inputs.problem).value(), rank);
                  if (rank == 1) return;
                  lines.take();
                  for (int i = 0; i < 3; ++i) {
                    expect_refused(forward(*engine, flight), ErrorCode::kPeerLost, "rank 1");
                  }
                });
  const std::vector<std::string> told = lines.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], HasSubstr("error: rank 0: gives up, peer_lost"));
}

TEST(Log, WhatItThrowsChangesNothing) {
  int calls = 0;
  Options options;
  options.log = [&](LogLevel, std::string_view) {
    ++calls;
    throw std::runtime_error("a listener's own trouble");
  };
  const tool::Inputs inputs = inputs_of({.problem = kProblem});
  const auto engine = one_rank(options);
  const auto quiet = one_rank({});
  Flight told = make_flight(inputs, engine->prepare(inputs.problem).value(), 0);
  Flight silent = make_flight(inputs, quiet->prepare(inputs.problem).value(), 0);
  EXPECT_GT(calls, 3);
  ASSERT_TRUE(forward(*engine, told).ok());
  ASSERT_TRUE(forward(*quiet, silent).ok());
  EXPECT_EQ(std::memcmp(told.o.memory.data(), silent.o.memory.data(), told.o.memory.size()), 0);
}

/// No lock is held: what listens may prepare on another engine with the same plan cache.
TEST(Log, MayUseAnotherEngine) {
  Options options;
  options.plans = make_plan_cache();
  const auto other = one_rank(options);
  int prepared = 0;
  options.log = [&](LogLevel, std::string_view) {
    prepared += other->prepare(parse_problem(kProblem).value()).ok() ? 1 : 0;
  };
  ASSERT_TRUE(one_rank(options)->prepare(parse_problem(kProblem).value()).ok());
  EXPECT_GT(prepared, 3);
  EXPECT_EQ(statistics(*options.plans).builds, 2);
}

}  // namespace
}  // namespace longspan::testkit
