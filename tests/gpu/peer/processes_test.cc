// Ranks as processes of one host. They are forked before anybody has touched CUDA, which the test's
// own process never does.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include "gpu/fork_ranks.h"
#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "gpu/peer/socket_group.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testkit::Case;
using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  if (!result.ok()) _exit(3);
  return std::move(result).value();
}

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().text(); }

Case small_case() {
  Case c;
  c.problem = "dtype=bf16 heads=4/2 dim=64 lengths=300,77 mask=causal";
  c.ranks = 2;
  c.partition = "zigzag";
  c.provider = "cuda/reference";
  return c;
}

/// How ranks are placed on the devices of the machine.
Device device_of(int rank, bool spread) {
  return must(cuda_device(spread ? rank % must(cuda_device_count()) : 0));
}

/// An engine on one rank, its call and a stream.
struct Runner {
  Runner(const Case& c, const tool::Inputs& inputs, std::shared_ptr<Communicator> over,
         const Device& device)
      : scope(device.ordinal),
        communicator(std::move(over)),
        engine(must(Engine::create(testkit::options_of(c), communicator, device))),
        flight(must(DeviceFlight::make(inputs, must(engine->prepare(inputs.problem)), communicator,
                                       device))),
        stream(must(cuda::OwnedStream::make())) {}

  Status queue() { return flight->queue(*engine, stream.get()); }
  Bytes eager(const tool::Inputs& inputs) {
    expect_ok(flight->load(inputs));
    expect_ok(queue());
    return results();
  }
  Bytes results() {
    expect_ok(cuda::synchronize(stream.get()));
    expect_ok(communicator->health());
    return must(flight->results());
  }

  cuda::DeviceScope scope;
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<DeviceFlight> flight;
  cuda::OwnedStream stream;
};

/// What a rank gets when all ranks are threads of one process.
Bytes result_of_threads(const Case& c, const tool::Inputs& inputs, int wanted) {
  const std::vector<Device> devices(static_cast<size_t>(c.ranks), device_of(0, false));
  Bytes result;
  testkit::for_each_rank(must(make_peer_communicators(Topology::blocks(c.ranks, 1), devices)),
                         [&](std::shared_ptr<Communicator> communicator) {
                           const int rank = communicator->rank();
                           Runner runner(c, inputs, std::move(communicator), devices[0]);
                           Bytes own = runner.eager(inputs);
                           if (rank == wanted) result = std::move(own);
                         });
  return result;
}

void expect_results_of_threads(const Case& c, bool spread) {
  const tool::Inputs inputs = testkit::inputs_of(c);
  const SocketGroup group(c.ranks);
  const auto codes = fork_ranks(c.ranks, [&](int rank) {
    const Bytes expected = result_of_threads(c, inputs, rank);
    const Device device = device_of(rank, spread);
    Runner runner(c, inputs, must(make_peer_communicator(group.rank(rank), device)), device);
    for (int round = 0; round < 3; ++round) EXPECT_EQ(runner.eager(inputs), expected);
    const Graph graph(runner.stream.get(), [&] { return runner.queue(); });
    for (int round = 0; round < 3; ++round) {
      expect_ok(runner.flight->load(inputs));
      graph.launch();
      EXPECT_EQ(runner.results(), expected) << "replay " << round;
      EXPECT_EQ(runner.eager(inputs), expected) << "between replays";
    }
  });
  EXPECT_EQ(codes, std::vector<int>(static_cast<size_t>(c.ranks), 0));
}

TEST(PeerProcesses, TwoOnOneDeviceGiveTheBitsOfThreads) {
  expect_results_of_threads(small_case(), false);
}

TEST(PeerProcesses, TwoOnAllDevicesGiveTheBitsOfThreads) {
  expect_results_of_threads(small_case(), true);
}

TEST(PeerProcesses, FourWithHeadsExchangedGiveTheBitsOfThreads) {
  Case c = small_case();
  c.ranks = 4;
  c.forward = c.backward = "all_to_all";
  expect_results_of_threads(c, true);
}

/// Rank 1 dies while rank 0 runs `step` again and again. Rank 0 must hear of it soon.
void expect_survivor(const std::function<std::function<Status(Runner&)>(Runner&)>& make_step) {
  const Case c = small_case();
  const tool::Inputs inputs = testkit::inputs_of(c);
  const SocketGroup group(2);
  const auto codes = fork_ranks(2, [&](int rank) {
    const Device device = device_of(rank, true);
    const auto communicator = must(make_peer_communicator(group.rank(rank), device));
    Runner runner(c, inputs, communicator, device);
    runner.eager(inputs);
    const auto step = make_step(runner);
    if (rank == 1) {
      std::thread([] {
        std::this_thread::sleep_for(300ms);
        kill(getpid(), SIGKILL);
      }).detach();
    }
    const auto begin = Clock::now();
    Status status;
    while (status.ok() && Clock::now() - begin < 20s) {
      status = step(runner);
      (void)cuda::synchronize(runner.stream.get()).ok();
      if (status.ok()) status = communicator->health();
    }
    EXPECT_LT(Clock::now() - begin, 5s);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost) << status.error().text();
    EXPECT_THAT(status.error().message, HasSubstr("rank 1"));
    _exit(::testing::Test::HasFailure() ? 1 : 0);  // a device whose peer died may not tidy up
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
}

TEST(PeerProcesses, AKilledRankEndsEagerCalls) {
  expect_survivor([](Runner&) { return [](Runner& runner) { return runner.queue(); }; });
}

TEST(PeerProcesses, AKilledRankEndsReplays) {
  expect_survivor([](Runner& runner) {
    const auto graph = std::make_shared<Graph>(runner.stream.get(), [&] { return runner.queue(); });
    return [graph](Runner&) -> Status {
      graph->launch();
      return {};
    };
  });
}

TEST(PeerProcesses, MemoryThatCannotBeSharedIsNamedWithTheRemedy) {
  const SocketGroup group(2);
  const auto codes = fork_ranks(2, [&](int rank) {
    const Device device = device_of(rank, false);
    const auto communicator = must(make_peer_communicator(group.rank(rank), device));
    void* pooled = nullptr;
    ASSERT_EQ(cudaMallocAsync(&pooled, 4096, nullptr), cudaSuccess);
    const Transfer transfer{TransferKind::kRecv, 1 - rank, 1, pooled, 4096};
    const auto request = communicator->start_on({&transfer, 1}, {});
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(request.error().message, HasSubstr("Communicator::allocate"));
    EXPECT_THAT(request.error().message, HasSubstr("memory at 0x"));
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace longspan::testing
