// Promises about lengths: what a call must bring, and what guards of the host do.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/refusals.h"
#include "numbers.h"
#include "testkit/groups.h"

namespace longspan::testkit {
namespace {

using ::testing::HasSubstr;

constexpr const char* kProblem =
    "dtype=f32 heads=4/2 dim=8 lengths=6,9 mask=causal device_lengths=true";

const std::vector<int32_t> kFull = {6, 9};

/// One rank: an engine, a call, and tensors for it.
struct Bench {
  explicit Bench(std::vector<Promise> promises = {}, const char* problem = kProblem)
      : Bench(std::move(promises), inputs_of({.problem = problem}, kFull, kFull)) {}
  Bench(std::vector<Promise> promises, tool::Inputs given) : inputs(std::move(given)) {
    Options options;
    options.promises = std::move(promises);
    engine = Engine::create(options, make_threads_communicators(Topology::blocks(1, 1))[0],
                            shared_device())
                 .value();
    call = engine->prepare(inputs.declared()).value();
    flight = std::make_unique<Flight>(make_flight(inputs, call, 0));
  }

  Status run(const std::vector<int32_t>& q, const std::vector<int32_t>& k) {
    flight->side.lengths = {.q = q, .k = k};
    const Status ahead = forward(*engine, *flight);
    return ahead.ok() ? backward(*engine, *flight) : ahead;
  }

  tool::Inputs inputs;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Call> call;
  std::unique_ptr<Flight> flight;
};

bool all_nan(const tool::Tensor& tensor) {
  for (int64_t row = 0; row < tensor.view.rows(); ++row) {
    for (int64_t head = 0; head < tensor.view.heads; ++head) {
      for (int64_t i = 0; i < tensor.view.dim; ++i) {
        if (!std::isnan(tool::load(tensor.view, row, head, i))) return false;
      }
    }
  }
  return true;
}

bool any_nan(const tool::Tensor& tensor) {
  for (int64_t row = 0; row < tensor.view.rows(); ++row) {
    for (int64_t head = 0; head < tensor.view.heads; ++head) {
      for (int64_t i = 0; i < tensor.view.dim; ++i) {
        if (std::isnan(tool::load(tensor.view, row, head, i))) return true;
      }
    }
  }
  return false;
}

TEST(Guards, LengthsComeExactlyWhereTheProblemAsks) {
  Bench bench;
  expect_invalid(bench.run({}, {}), "lengths_q has 0 entries");
  expect_invalid(bench.run({1, 2}, {1}), "lengths_k has 1 entries");
  expect_invalid(bench.run({1, 2, 3}, {1, 2}), "needs 2, one per sequence");
  Bench plain({}, inputs_of({.problem = "dtype=f32 heads=4/2 dim=8 lengths=6,9 mask=causal"}));
  expect_invalid(plain.run({1, 2}, {1, 2}), "device_lengths=false");
  EXPECT_TRUE(plain.run({}, {}).ok());
}

TEST(Guards, ReportWhatDoesNotHoldAndPoisonTheOutputs) {
  struct Broken {
    std::vector<int32_t> q, k;
    std::string text;
  };
  const std::vector<Broken> all = {
      {{7, 9}, {6, 9}, "lengths_q of sequence 0 is 7; it must be 0 to 6"},
      {{6, -1}, {6, 9}, "lengths_q of sequence 1 is -1; it must be 0 to 9"},
      {{6, 9}, {6, 10}, "lengths_k of sequence 1 is 10; it must be 0 to 9"},
      {{6, 9}, {-2147483647, 9}, "lengths_k of sequence 0 is -2147483647"},
      {{2147483647, 9}, {2147483647, 99}, "lengths_q of sequence 0 is 2147483647"},
  };
  for (const Broken& broken : all) {
    Bench bench;
    Flight& f = *bench.flight;
    expect_refused(bench.run(broken.q, broken.k), ErrorCode::kGuardFailed, broken.text);
    EXPECT_TRUE(all_nan(f.o) && all_nan(f.lse)) << broken.text;
    expect_refused(backward(*bench.engine, f), ErrorCode::kGuardFailed, "promise device_lengths");
    EXPECT_TRUE(all_nan(f.dq) && all_nan(f.dk) && all_nan(f.dv)) << broken.text;
    // Reported once; the next call is as any other.
    Stream stream;
    EXPECT_TRUE(bench.engine->synchronize(stream).ok());
    const Status after = bench.run({3, 9}, {3, 8});
    EXPECT_TRUE(after.ok()) << after.error().text();
    EXPECT_FALSE(any_nan(f.o) || any_nan(f.lse) || any_nan(f.dq) || any_nan(f.dk));
  }
}

TEST(Guards, UniformLengthsTakeTheExactScheduleAndAreChecked) {
  Bench bench({Promise::kUniformLengths});
  EXPECT_FALSE(bench.call->schedule(Direction::kForward).tiles.features.device_lengths);
  EXPECT_TRUE(bench.run({6, 9}, {6, 9}).ok());
  expect_refused(bench.run({6, 8}, {6, 9}), ErrorCode::kGuardFailed,
                 "promise uniform_lengths: lengths_q of sequence 1 is 8; it must be 9");
  EXPECT_TRUE(all_nan(bench.flight->o));
  EXPECT_TRUE(bench.run({6, 9}, {6, 9}).ok());
  EXPECT_FALSE(any_nan(bench.flight->o));
}

TEST(Guards, UniformLengthsAllowWhatNeedsKnownLengths) {
  Bench bench({Promise::kUniformLengths},
              "dtype=f32 heads=4/2 dim=8 lengths=6,9 mask=bottom_right sink=off_by_one "
              "device_lengths=true");
  EXPECT_TRUE(bench.run({6, 9}, {6, 9}).ok());
}

TEST(Guards, FailOnEveryRankAndKeepRanksInStep) {
  const Case c{.problem = kProblem, .ranks = 3, .forward = "ring", .backward = "ring"};
  const tool::Inputs inputs = inputs_of(c, kFull, kFull);
  const std::vector<int32_t> good = {4, 9};
  const std::vector<int32_t> bad = {4, 11};
  for_each_rank(
      make_threads_communicators(Topology::blocks(3, 1)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine =
            Engine::create(options_of(c), std::move(communicator), shared_device()).value();
        const auto call = engine->prepare(inputs.declared()).value();
        Flight flight = make_flight(inputs, call, rank);
        // Only rank 1 breaks the promise: the others must not wait for it in vain.
        flight.side.lengths = {.q = rank == 1 ? bad : good, .k = good};
        EXPECT_EQ(forward(*engine, flight).ok(), rank != 1);
        flight.side.lengths = {.q = good, .k = good};
        EXPECT_TRUE(forward(*engine, flight).ok());
        EXPECT_TRUE(backward(*engine, flight).ok());
        EXPECT_FALSE(any_nan(flight.o));
      });
}

TEST(Guards, CompactLengthsAreAboutTheLayoutToo) {
  Bench bench({Promise::kCompactLengths});
  EXPECT_TRUE(bench.run({6, 9}, {6, 9}).ok());
  expect_refused(bench.run({6, 9}, {5, 9}), ErrorCode::kGuardFailed,
                 "promise compact_lengths: lengths_k of sequence 0 is 5; it must be 6");
  const auto prepared = [](const std::string& problem) {
    Options options;
    options.promises = {Promise::kCompactLengths};
    return Engine::create(options, make_threads_communicators(Topology::blocks(1, 1))[0],
                          shared_device())
        .value()
        ->prepare(parse_problem(problem + " device_lengths=true").value());
  };
  const std::string head = "dtype=f32 heads=4/2 dim=8 mask=causal ";
  EXPECT_TRUE(prepared(head + "lengths=6,0 kv_lengths=6,3").ok());
  expect_invalid(prepared(head + "lengths=6,9 padded=6,10 kv_padded=6,9"),
                 "promise compact_lengths: sequence 1 has 9 tokens in an extent of 10");
  expect_invalid(prepared(head + "lengths=6,9 kv_lengths=6,0"),
                 "promise compact_lengths: sequence 1 has 9 queries and no key");
}

TEST(Guards, PitchedSequencesAreAlike) {
  const auto prepared = [](const std::string& problem, const std::string& strategy) {
    Options options;
    options.promises = {Promise::kPitchedAllGather};
    options.forward.strategy = strategy;
    return Engine::create(options, make_threads_communicators(Topology::blocks(1, 1))[0],
                          shared_device())
        .value()
        ->prepare(
            parse_problem("dtype=f32 heads=4/2 dim=8 device_lengths=true " + problem).value());
  };
  EXPECT_TRUE(prepared("lengths=9,9 padded=10,10 mask=causal", "all_gather").ok());
  expect_invalid(prepared("lengths=9,9 mask=causal", "auto"),
                 "promise pitched_all_gather with forward strategy auto: ask for all_gather");
  expect_invalid(prepared("lengths=9,9 mask=none", "all_gather"), "mask=none, but causal");
  expect_invalid(prepared("lengths=9,8 mask=causal", "all_gather"),
                 "sequence 1 has 8 queries in an extent of 8");
}

TEST(Guards, TrapsNeedADevice) {
  Options options;
  options.guards = GuardPolicy::kTrap;
  expect_invalid(Engine::create(options, make_threads_communicators(Topology::blocks(1, 1))[0],
                                shared_device()),
                 "only CUDA devices trap");
}

TEST(Guards, NamesAreParsedStrictly) {
  EXPECT_EQ(parse_promise("uniform_lengths").value(), Promise::kUniformLengths);
  for (const char* text : {"", "uniform", "Uniform_lengths", "device_lengths", "true"}) {
    expect_invalid(parse_promise(text), "allowed: uniform_lengths");
  }
  for (const Promise promise :
       {Promise::kUniformLengths, Promise::kCompactLengths, Promise::kPitchedAllGather}) {
    EXPECT_EQ(parse_promise(name(promise)).value(), promise);
  }
  EXPECT_EQ(parse_guard_policy("report").value(), GuardPolicy::kReport);
  EXPECT_EQ(parse_guard_policy("trap").value(), GuardPolicy::kTrap);
  for (const char* text : {"", "off", "Trap"}) {
    expect_invalid(parse_guard_policy(text), "allowed are report and trap");
  }
}

}  // namespace
}  // namespace longspan::testkit
