// As pulls_test.cc, ranks as processes. They are forked before anybody has touched CUDA, which the
// test's own process never does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <vector>

#include "gpu/fork_ranks.h"
#include "gpu/graph.h"
#include "gpu/hopper/pulling.h"
#include "gpu/peer/socket_group.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testkit::Case;
using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

/// What a rank gets when all ranks are threads of one process.
Bytes result_of_threads(const Case& c, const tool::Inputs& inputs, int wanted) {
  const std::vector<Device> devices(static_cast<size_t>(c.ranks), device_of(0, false));
  Bytes result;
  testkit::for_each_rank(must(make_peer_communicators(Topology::blocks(c.ranks, 1), devices)),
                         [&](std::shared_ptr<Communicator> communicator) {
                           const int number = communicator->rank();
                           PullingRank rank(c, inputs, std::move(communicator), devices[0]);
                           Bytes own = rank.eager(inputs);
                           if (number == wanted) result = std::move(own);
                         });
  return result;
}

void expect_results_of_threads(bool spread) {
  const Case c = pulling_case();
  const tool::Inputs inputs = testkit::inputs_of(c);
  const SocketGroup group(c.ranks);
  const auto codes = fork_ranks(c.ranks, [&](int number) {
    const Bytes expected = result_of_threads(c, inputs, number);
    const Device device = device_of(number, spread);
    PullingRank rank(c, inputs, must(make_peer_communicator(group.rank(number), device)), device);
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

TEST(PullsOfProcesses, OnOneDeviceGiveTheBitsOfThreads) { expect_results_of_threads(false); }

TEST(PullsOfProcesses, OnAllDevicesGiveTheBitsOfThreads) { expect_results_of_threads(true); }

TEST(PullsOfProcesses, AKilledRankIsALostPeer) {
  const Case c = pulling_case();
  const tool::Inputs inputs = testkit::inputs_of(c);
  const SocketGroup group(2);
  const auto codes = fork_ranks(2, [&](int number) {
    const Device device = device_of(number, true);
    const auto communicator = must(make_peer_communicator(group.rank(number), device));
    PullingRank rank(c, inputs, communicator, device);
    rank.eager(inputs);
    if (number == 1) {
      std::thread([] {
        std::this_thread::sleep_for(300ms);
        kill(getpid(), SIGKILL);
      }).detach();
    }
    const auto begin = Clock::now();
    Status status;
    while (status.ok() && Clock::now() - begin < 20s) {
      status = rank.flight->forward(*rank.engine, rank.stream.get());
      (void)cuda::synchronize(rank.stream.get()).ok();
      if (status.ok()) status = communicator->health();
    }
    EXPECT_LT(Clock::now() - begin, 5s);
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost) << status.error().text();
    EXPECT_THAT(status.error().message, HasSubstr("rank 1"));
    _exit(::testing::Test::HasFailure() ? 1 : 0);  // a device whose peer died may not tidy up
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
}

}  // namespace
}  // namespace longspan::testing
