// Ranks as processes of one host. They are forked before anybody has touched CUDA, which the test's
// own process never does.
#include "gpu/peer/processes.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;
using testkit::Case;
using Bytes = std::vector<std::byte>;

Case small_case() {
  Case c;
  c.problem = "dtype=bf16 heads=4/2 dim=64 lengths=300,77 mask=causal";
  c.ranks = 2;
  c.partition = "zigzag";
  c.provider = "cuda/reference";
  return c;
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

/// make() of gpu/peer/processes.h.
auto runner_of(const Case& c) {
  return [c](const tool::Inputs& inputs, std::shared_ptr<Communicator> over, const Device& device) {
    return Runner(c, inputs, std::move(over), device);
  };
}

TEST(PeerProcesses, TwoOnOneDeviceGiveTheBitsOfThreads) {
  expect_results_of_threads(small_case(), false, runner_of(small_case()));
}

TEST(PeerProcesses, TwoOnAllDevicesGiveTheBitsOfThreads) {
  expect_results_of_threads(small_case(), true, runner_of(small_case()));
}

TEST(PeerProcesses, FourWithHeadsExchangedGiveTheBitsOfThreads) {
  Case c = small_case();
  c.ranks = 4;
  c.forward = c.backward = "all_to_all";
  expect_results_of_threads(c, true, runner_of(c));
}

TEST(PeerProcesses, AKilledRankEndsEagerCalls) {
  expect_survivor(small_case(), runner_of(small_case()),
                  [](Runner& runner) { return [&runner] { return runner.queue(); }; });
}

TEST(PeerProcesses, AKilledRankEndsReplays) {
  expect_survivor(small_case(), runner_of(small_case()), [](Runner& runner) {
    const auto graph = std::make_shared<Graph>(runner.stream.get(), [&] { return runner.queue(); });
    return [graph]() -> Status {
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
