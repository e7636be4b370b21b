// Calls in flight, what the engine counts, and what the workspace may hold.
#include <gtest/gtest.h>

#include <cstring>

#include "testkit/flight.h"
#include "testkit/groups.h"
#include "testkit/mailbox.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr const char* kProblem = "dtype=bf16 heads=4/2 dim=10 dim_v=6 lengths=23,0,12 mask=causal";

void expect_same(const tool::Tensor& a, const tool::Tensor& b, const std::string& name) {
  ASSERT_EQ(a.memory.size(), b.memory.size());
  if (a.memory.size() == 0) return;
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data(), a.memory.size()), 0) << name;
}

void expect_same_results(const Flight& a, const Flight& b) {
  expect_same(a.o, b.o, "o");
  expect_same(a.lse, b.lse, "lse");
  expect_same(a.dq, b.dq, "dq");
  expect_same(a.dk, b.dk, "dk");
  expect_same(a.dv, b.dv, "dv");
}

class InFlight : public testing::TestWithParam<StrategyPair> {};

TEST_P(InFlight, ForwardsMayRunBeforeTheirBackwards) {
  Case c{.problem = "dtype=f32 heads=4/2 dim=16 lengths=50,0,17 mask=causal",
         .ranks = 4,
         .nodes = 2,
         .forward = GetParam().forward,
         .backward = GetParam().backward,
         .partition = "zigzag"};
  std::vector<tool::Inputs> inputs;
  for (c.seed = 0; c.seed < 3; ++c.seed) inputs.push_back(inputs_of(c));
  for_each_rank(
      make_threads_communicators(Topology::blocks(c.ranks, c.nodes)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine =
            Engine::create(options_of(c), std::move(communicator), shared_device()).value();
        const auto call = engine->prepare(inputs[0].problem).value();
        std::vector<Flight> apart, together;
        for (const tool::Inputs& in : inputs) {
          apart.push_back(make_flight(in, call, rank));
          together.push_back(make_flight(in, call, rank));
        }
        for (Flight& flight : apart) {
          ASSERT_TRUE(forward(*engine, flight).ok());
          ASSERT_TRUE(backward(*engine, flight).ok());
        }
        for (Flight& flight : together) ASSERT_TRUE(forward(*engine, flight).ok());
        for (const size_t i : {1u, 0u, 2u}) ASSERT_TRUE(backward(*engine, together[i]).ok());
        for (size_t i = 0; i < apart.size(); ++i) expect_same_results(apart[i], together[i]);
      });
}

INSTANTIATE_TEST_SUITE_P(Strategies, InFlight, testing::ValuesIn(diagonal_pairs()));

/// Ranks whose queries see no key of another rank exchange nothing, and empty ranks launch nothing.
TEST(Counters, EmptyTilesCostNothing) {
  const Case c{.problem = "dtype=f32 heads=2/2 dim=8 lengths=30,2 mask=causal", .ranks = 4};
  const tool::Inputs inputs = inputs_of(c);
  for_each_rank(
      make_threads_communicators(Topology::blocks(c.ranks, 1)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine =
            Engine::create(options_of(c), std::move(communicator), shared_device()).value();
        Flight flight = make_flight(inputs, engine->prepare(inputs.problem).value(), rank);
        EXPECT_EQ(engine->counters().attend_launches, 0);
        ASSERT_TRUE(forward(*engine, flight).ok());
        // Contiguous pieces under a causal mask: rank r sees the keys of r + 1 ranks.
        EXPECT_EQ(engine->counters().attend_launches, rank + 1);
        ASSERT_TRUE(backward(*engine, flight).ok());
        EXPECT_EQ(engine->counters().attend_launches, 2 * (rank + 1));
        const Schedule& ahead = flight.call->schedule(Direction::kForward);
        EXPECT_EQ(engine->counters().bytes_sent_forward, ahead.bytes_sent());
        EXPECT_EQ(engine->counters().bytes_sent_backward,
                  flight.call->schedule(Direction::kBackward).bytes_sent());
        // Nobody sees the last rank's keys.
        EXPECT_EQ(ahead.bytes_sent() == 0, rank == c.ranks - 1);
      });
}

/// Results of both directions as bytes, and the fills that each took.
struct Filled {
  std::vector<std::byte> bytes;
  int64_t forward = 0, backward = 0;
};

Filled run_filled(OutputFill fill, const Case& c, const tool::Inputs& inputs) {
  Filled result;
  for_each_rank(
      make_threads_communicators(Topology::blocks(1, 1)),
      [&](std::shared_ptr<Communicator> communicator) {
        Options options = options_of(c);
        options.output_fill = fill;
        const auto engine =
            Engine::create(options, std::move(communicator), shared_device()).value();
        Flight flight = make_flight(inputs, engine->prepare(inputs.problem).value(), 0);
        ASSERT_TRUE(forward(*engine, flight).ok());
        result.forward = engine->counters().fill_steps;
        ASSERT_TRUE(backward(*engine, flight).ok());
        result.backward = engine->counters().fill_steps - result.forward;
        for (const tool::Tensor* t : {&flight.o, &flight.lse, &flight.dq, &flight.dk, &flight.dv}) {
          result.bytes.insert(result.bytes.end(), t->memory.data(),
                              t->memory.data() + t->memory.size());
        }
      });
  return result;
}

TEST(Counters, FilledOutputsHaveTheSameBits) {
  const Case c{.problem =
                   "dtype=bf16 heads=4/2 dim=8 lengths=30,0,7 padded=32,2,7 mask=causal "
                   "kv_padded=31,2,7"};
  const tool::Inputs inputs = inputs_of(c);
  const Filled elided = run_filled(OutputFill::kElide, c, inputs);
  const Filled always = run_filled(OutputFill::kAlways, c, inputs);
  EXPECT_EQ(always.bytes, elided.bytes);
  EXPECT_EQ(always.forward - elided.forward, 2);    // O and LSE
  EXPECT_EQ(always.backward - elided.backward, 3);  // dQ, dK and dV
}

TEST(Counters, NamesOfFillsAreParsedStrictly) {
  for (const OutputFill fill : {OutputFill::kElide, OutputFill::kAlways}) {
    EXPECT_EQ(parse_output_fill(name(fill)).value(), fill);
  }
  EXPECT_EQ(parse_output_fill("yes").error().code, ErrorCode::kInvalidArgument);
}

TEST(Counters, NothingToComputeLaunchesAndSendsNothing) {
  for (const StrategyPair& pair : all_pairs()) {
    for (const char* lengths : {"lengths=0,0", "lengths=9,4 kv_lengths=0,0"}) {
      const Case c{.problem = std::string("dtype=f32 heads=2/2 dim=8 mask=none ") + lengths,
                   .ranks = 2,
                   .nodes = 2,
                   .forward = pair.forward,
                   .backward = pair.backward};
      SCOPED_TRACE(text(c));
      const auto calls = prepare_group(c);
      ASSERT_TRUE(calls.ok()) << calls.error().text();
      for (const auto& call : *calls) {
        EXPECT_EQ(call->schedule(Direction::kForward).tile_count(), 0);
        EXPECT_EQ(call->schedule(Direction::kBackward).tile_count(), 0);
      }
      const tool::Inputs inputs = inputs_of(c);
      const auto results = run_case(c, inputs, shared_device());
      ASSERT_TRUE(results.ok());
      expect_right(inputs, *results, reference_of(inputs));
    }
  }
}

TEST(Callback, AProcessGroupOfTheCallersOwn) {
  const Case c{.problem = kProblem, .ranks = 3, .partition = "balanced"};
  const tool::Inputs inputs = inputs_of(c);
  const auto results = run_group(c, inputs, make_mailbox_communicators(Topology::blocks(3, 1)));
  ASSERT_TRUE(results.ok()) << results.error().text();
  expect_right(inputs, *results, reference_of(inputs));
}

/// One call, workspaces that held different things.
TEST(Workspace, WhatItHeldDoesNotMatter) {
  const Case c{.problem = kProblem};
  const tool::Inputs inputs = inputs_of(c);
  for_each_rank(
      make_threads_communicators(Topology::blocks(3, 1)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine =
            Engine::create(options_of(c), std::move(communicator), shared_device()).value();
        const auto call = engine->prepare(inputs.problem).value();
        Flight nan = make_flight(inputs, call, rank);
        ASSERT_TRUE(forward(*engine, nan).ok());
        ASSERT_TRUE(backward(*engine, nan).ok());
        for (const int content : {0x00, 0x7f, 0x3c}) {
          Flight flight = make_flight(inputs, call, rank);
          const auto poison = [&] {
            if (flight.workspace.size() > 0) {
              std::memset(flight.workspace.data(), content, flight.workspace.size());
            }
          };
          Stream stream;
          poison();
          ASSERT_TRUE(forward(*engine, flight).ok());
          poison();
          ASSERT_TRUE(engine
                          ->backward(*call, flight.backward_operands(), flight.saved_pointers(),
                                     flight.scratch(), stream)
                          .ok());
          expect_same_results(flight, nan);
        }
      });
}

}  // namespace
}  // namespace longspan::testkit
