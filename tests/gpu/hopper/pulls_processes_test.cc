// As pulls_test.cc, ranks as processes. They are forked before anybody has touched CUDA, which the
// test's own process never does.
#include <gtest/gtest.h>

#include <utility>

#include "gpu/hopper/pulling.h"
#include "gpu/peer/processes.h"

namespace longspan::testing {
namespace {

PullingRank make_rank(const tool::Inputs& inputs, std::shared_ptr<Communicator> communicator,
                      const Device& device) {
  return PullingRank(pulling_case(), inputs, std::move(communicator), device);
}

TEST(PullsOfProcesses, OnOneDeviceGiveTheBitsOfThreads) {
  expect_results_of_threads(pulling_case(), false, make_rank);
}

TEST(PullsOfProcesses, OnAllDevicesGiveTheBitsOfThreads) {
  expect_results_of_threads(pulling_case(), true, make_rank);
}

TEST(PullsOfProcesses, AKilledRankIsALostPeer) {
  expect_survivor(pulling_case(), make_rank, [](PullingRank& rank) {
    return [&rank] { return rank.flight->forward(*rank.engine, rank.stream.get()); };
  });
}

}  // namespace
}  // namespace longspan::testing
