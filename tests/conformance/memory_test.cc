// No memory grows with the square of the length, and cost() predicts what a run takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "testkit/flight.h"
#include "testkit/groups.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward};

using Calls = std::vector<std::shared_ptr<const Call>>;

Case case_of(const StrategyPair& pair, const char* provider, int ranks, int64_t length) {
  return {.problem = fmt::format("dtype=f32 heads=4/2 dim=32 lengths={} mask=causal", length),
          .ranks = ranks,
          .nodes = ranks > 1 ? 2 : 1,
          .forward = pair.forward,
          .backward = pair.backward,
          .partition = "zigzag",
          .provider = provider};
}

Calls must_prepare(const Case& c) {
  auto calls = prepare_group(c);
  EXPECT_TRUE(calls.ok()) << text(c) << ": " << (calls.ok() ? "" : calls.error().text());
  return calls.ok() ? std::move(calls).value() : Calls{};
}

size_t saved_bytes(const Call& call) {
  size_t bytes = 0;
  for (const BufferSpec& spec : call.saved_layout()) {
    if (!spec.alias.empty()) continue;
    bytes +=
        static_cast<size_t>(spec.shape[0] * spec.shape[1] * spec.shape[2] * size_of(spec.dtype));
  }
  return bytes;
}

class Memory : public testing::TestWithParam<std::tuple<StrategyPair, const char*>> {
 protected:
  StrategyPair pair() const { return std::get<0>(GetParam()); }
  const char* provider() const { return std::get<1>(GetParam()); }
};

TEST_P(Memory, GrowsAtMostWithTheLength) {
  constexpr size_t kConstant = 64 << 10;
  constexpr int64_t kLength = 3072;  // sizes that plans do not round up
  for (const int ranks : {1, 4}) {
    const Calls shorter = must_prepare(case_of(pair(), provider(), ranks, kLength));
    const Calls longer = must_prepare(case_of(pair(), provider(), ranks, 2 * kLength));
    ASSERT_EQ(shorter.size(), longer.size());
    for (size_t rank = 0; rank < shorter.size(); ++rank) {
      for (const Direction direction : kDirections) {
        EXPECT_LE(longer[rank]->workspace_bytes(direction),
                  2 * shorter[rank]->workspace_bytes(direction) + kConstant)
            << name(direction) << " on rank " << rank << " of " << ranks;
      }
      EXPECT_LE(saved_bytes(*longer[rank]), 2 * saved_bytes(*shorter[rank]) + kConstant);
    }
  }
}

TEST_P(Memory, OfARunIsWhatCostPredicts) {
  const Case c = case_of(pair(), provider(), 4, 700);
  const auto results = run_case(c, inputs_of(c), shared_device());
  ASSERT_TRUE(results.ok()) << results.error().text();
  const Calls calls = must_prepare(c);
  std::vector<int64_t> predicted(calls.size(), 0);
  for (const Direction direction : kDirections) {
    std::vector<Schedule> schedules;
    for (const auto& call : calls) schedules.push_back(call->schedule(direction));
    const std::vector<Cost> costs = cost(schedules, Topology::blocks(c.ranks, c.nodes), {});
    for (size_t rank = 0; rank < costs.size(); ++rank) {
      predicted[rank] = std::max(predicted[rank], costs[rank].peak_bytes);
      EXPECT_EQ(cost(schedules[rank], Topology::blocks(c.ranks, c.nodes), {}).peak_bytes,
                costs[rank].peak_bytes);
    }
  }
  ASSERT_EQ(results->peak_bytes.size(), predicted.size());
  for (size_t rank = 0; rank < predicted.size(); ++rank) {
    const auto measured = static_cast<double>(results->peak_bytes[rank]);
    EXPECT_NEAR(measured, static_cast<double>(predicted[rank]), 0.1 * measured) << "rank " << rank;
  }
}

/// Bytes of the workspace that a direction wrote.
size_t written(const tool::Memory& memory, size_t bytes, std::byte before) {
  return static_cast<size_t>(std::count_if(memory.data(), memory.data() + bytes,
                                           [&](std::byte b) { return b != before; }));
}

TEST_P(Memory, OfTheScheduleIsUsed) {
  const Case c = case_of(pair(), provider(), 4, 700);
  const tool::Inputs inputs = inputs_of(c);
  for_each_rank(
      make_threads_communicators(Topology::blocks(c.ranks, c.nodes)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        auto engine = Engine::create(options_of(c), std::move(communicator), shared_device());
        ASSERT_TRUE(engine.ok());
        const auto call = (*engine)->prepare(inputs.problem);
        ASSERT_TRUE(call.ok()) << call.error().text();
        Flight flight = make_flight(inputs, *call, rank);
        const auto expect_used = [&](Direction direction) {
          const auto bytes = static_cast<size_t>((*call)->schedule(direction).workspace_bytes);
          // A written byte may happen to be 0xff; few do.
          EXPECT_GE(static_cast<double>(written(flight.workspace, bytes, std::byte{0xff})),
                    0.85 * static_cast<double>(bytes))
              << name(direction) << " on rank " << rank;
        };
        ASSERT_TRUE(forward(**engine, flight).ok());
        expect_used(Direction::kForward);
        ASSERT_TRUE(backward(**engine, flight).ok());
        expect_used(Direction::kBackward);
      });
}

INSTANTIATE_TEST_SUITE_P(Strategies, Memory,
                         testing::Combine(testing::ValuesIn(all_pairs()),
                                          testing::Values("cpu/tiled", "cpu/reference")));

}  // namespace
}  // namespace longspan::testkit
