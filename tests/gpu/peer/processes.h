// Ranks as processes over peer. `make(inputs, communicator, device)` is a rank's engine, call and
// stream.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/fork_ranks.h"
#include "gpu/graph.h"
#include "gpu/must.h"
#include "gpu/peer/device_flight.h"
#include "gpu/peer/socket_group.h"
#include "testkit/groups.h"

namespace longspan::testing {

/// What a rank gets when all ranks are threads of one process.
template <class Make>
std::vector<std::byte> result_of_threads(int ranks, const tool::Inputs& inputs, int wanted,
                                         const Make& make) {
  const std::vector<Device> devices(static_cast<size_t>(ranks), device_of(0, false));
  std::vector<std::byte> result;
  testkit::for_each_rank(must(make_peer_communicators(Topology::blocks(ranks, 1), devices)),
                         [&](std::shared_ptr<Communicator> communicator) {
                           const int number = communicator->rank();
                           auto rank = make(inputs, std::move(communicator), devices[0]);
                           auto own = rank.eager(inputs);
                           if (number == wanted) result = std::move(own);
                         });
  return result;
}

template <class Make>
void expect_results_of_threads(const testkit::Case& c, bool spread, const Make& make) {
  const tool::Inputs inputs = testkit::inputs_of(c);
  const SocketGroup group(c.ranks);
  const auto codes = fork_ranks(c.ranks, [&](int number) {
    const auto expected = result_of_threads(c.ranks, inputs, number, make);
    const Device device = device_of(number, spread);
    auto rank = make(inputs, must(make_peer_communicator(group.rank(number), device)), device);
    for (int round = 0; round < 3; ++round) EXPECT_EQ(rank.eager(inputs), expected);
    const Graph graph(rank.stream.get(), [&] { return rank.queue(); });
    for (int round = 0; round < 3; ++round) {
      expect_ok(rank.flight->load(inputs));
      graph.launch();
      EXPECT_EQ(rank.results(), expected) << "replay " << round;
      EXPECT_EQ(rank.eager(inputs), expected) << "between replays";
    }
  });
  EXPECT_EQ(codes, std::vector<int>(static_cast<size_t>(c.ranks), 0));
}

/// Rank 1 of two dies while rank 0 runs the step that `make_step(rank)` gives again and again. Rank
/// 0 must hear of it soon.
template <class Make, class MakeStep>
void expect_survivor(const testkit::Case& c, const Make& make, const MakeStep& make_step) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::seconds;
  const tool::Inputs inputs = testkit::inputs_of(c);
  const SocketGroup group(2);
  const auto codes = fork_ranks(2, [&](int number) {
    const Device device = device_of(number, true);
    const auto communicator = must(make_peer_communicator(group.rank(number), device));
    auto rank = make(inputs, communicator, device);
    rank.eager(inputs);
    const auto step = make_step(rank);
    if (number == 1) die_soon();
    const auto begin = Clock::now();
    Status status;
    while (status.ok() && Clock::now() - begin < seconds(20)) {
      status = step();
      (void)cuda::synchronize(rank.stream.get()).ok();
      if (status.ok()) status = communicator->health();
    }
    EXPECT_LT(Clock::now() - begin, seconds(5));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost) << status.error().text();
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("rank 1"));
    _exit(::testing::Test::HasFailure() ? 1 : 0);  // a device whose peer died may not tidy up
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
}

}  // namespace longspan::testing
