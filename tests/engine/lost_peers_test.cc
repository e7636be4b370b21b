// A rank that leaves or stays silent ends the others with peer_lost within the deadline, and what
// they call afterwards fails at once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "engine/refusals.h"
#include "testkit/flight.h"
#include "testkit/groups.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr int kOdd = 2;
constexpr std::chrono::milliseconds kDeadline{600};
/// What a slow machine may need beyond the deadline.
constexpr std::chrono::milliseconds kSlack{20000};

Case case_of(const StrategyPair& pair) {
  return {.problem = "dtype=f32 heads=4/4 dim=8 lengths=40 mask=none",
          .ranks = kRanks,
          .nodes = 2,
          .forward = pair.forward,
          .backward = pair.backward};
}

Options hurried(const Case& c) {
  Options options = options_of(c);
  options.deadline = kDeadline;
  return options;
}

/// The error is peer_lost, came in time, and stays: nothing waits again.
void expect_lost(Engine& engine, Flight& flight, const Status& status, Clock::time_point begin) {
  expect_refused(status, ErrorCode::kPeerLost, "rank");
  EXPECT_LT(Clock::now() - begin, kDeadline + kSlack);
  const auto again = Clock::now();
  expect_refused(forward(engine, flight), ErrorCode::kPeerLost, "rank");
  expect_refused(backward(engine, flight), ErrorCode::kPeerLost, "rank");
  const Problem other = parse_problem("dtype=f32 heads=1/1 dim=8 lengths=3 mask=none").value();
  expect_refused(engine.prepare(other), ErrorCode::kPeerLost, "rank");
  EXPECT_LT(Clock::now() - again, std::chrono::milliseconds(500) + kSlack / 10);
}

class LostPeers : public testing::TestWithParam<StrategyPair> {
 protected:
  /// Every rank prepares; `odd` is what the odd rank does instead of forward, `then` what the
  /// others expect.
  template <class Odd>
  void run(Odd&& odd) {
    const Case c = case_of(GetParam());
    const tool::Inputs inputs = inputs_of(c);
    std::atomic<int> left = kRanks - 1;
    for_each_rank(
        make_threads_communicators(Topology::blocks(kRanks, c.nodes)),
        [&](std::shared_ptr<Communicator> communicator) {
          const int rank = communicator->rank();
          auto engine =
              Engine::create(hurried(c), std::move(communicator), shared_device()).value();
          Flight flight = make_flight(inputs, engine->prepare(inputs.problem).value(), rank);
          ASSERT_TRUE(forward(*engine, flight).ok());
          if (rank == kOdd) {
            odd(std::move(engine), left);
            return;
          }
          const auto begin = Clock::now();
          expect_lost(*engine, flight, backward(*engine, flight), begin);
          --left;
        });
  }
};

TEST_P(LostPeers, ARankThatDestroysItsEngine) {
  run([](std::unique_ptr<Engine> engine, std::atomic<int>&) { engine.reset(); });
}

TEST_P(LostPeers, ARankThatNeverCalls) {
  run([](std::unique_ptr<Engine> engine, std::atomic<int>& left) {
    while (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    engine.reset();
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, LostPeers, testing::ValuesIn(diagonal_pairs()));

TEST(LostPeersInPrepare, ARankThatNeverPrepares) {
  const Case c = case_of({"ring", "ring"});
  const Problem problem = parse_problem(c.problem).value();
  std::atomic<int> left = kRanks - 1;
  for_each_rank(make_threads_communicators(Topology::blocks(kRanks, 1)),
                [&](std::shared_ptr<Communicator> communicator) {
                  const int rank = communicator->rank();
                  const auto engine =
                      Engine::create(hurried(c), std::move(communicator), shared_device()).value();
                  while (rank == kOdd && left > 0)
                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                  if (rank == kOdd) return;
                  const auto begin = Clock::now();
                  expect_refused(engine->prepare(problem), ErrorCode::kPeerLost, "rank");
                  EXPECT_LT(Clock::now() - begin, kDeadline + kSlack);
                  const auto again = Clock::now();
                  expect_refused(engine->prepare(problem), ErrorCode::kPeerLost, "rank");
                  EXPECT_LT(Clock::now() - again, kDeadline);
                  --left;
                });
}

TEST(LostPeersInPrepare, ARankThatDiesWhileOthersPrepare) {
  const Case c = case_of({"ring", "ring"});
  const Problem problem = parse_problem(c.problem).value();
  for_each_rank(make_threads_communicators(Topology::blocks(kRanks, 1)),
                [&](std::shared_ptr<Communicator> communicator) {
                  if (communicator->rank() == kOdd) return;
                  const auto engine =
                      Engine::create(hurried(c), std::move(communicator), shared_device()).value();
                  expect_refused(engine->prepare(problem), ErrorCode::kPeerLost, "rank");
                });
}

}  // namespace
}  // namespace longspan::testkit
