// nccl with ranks as processes that meet by file. They are forked before anybody has touched CUDA,
// which the test's own process never does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>

#include "gpu/fork_ranks.h"
#include "gpu/nccl/support.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::string meeting_path(const char* name) {
  return (std::filesystem::temp_directory_path() /
          ("longspan_nccl_" + std::string(name) + std::to_string(getpid())))
      .string();
}

std::shared_ptr<Communicator> join(const std::string& path, int rank) {
  const NcclMember member{
      .rank = rank, .topology = Topology::blocks(2, 1), .settings = {.deadline = 30s}};
  return must(make_nccl_communicator(path, member, device_of(rank)));
}

TEST(NcclProcesses, GiveTheBitsOfPeers) {
  const testkit::Case c = two_ranks();
  const tool::Inputs inputs = testkit::inputs_of(c);
  const std::string path = meeting_path("bits");
  const auto codes = fork_ranks(2, [&](int rank) {
    Bytes expected;
    auto peers =
        make_peer_communicators(Topology::blocks(2, 1), std::vector{device_of(0), device_of(1)});
    testkit::for_each_rank(must(std::move(peers)), [&](std::shared_ptr<Communicator> peer) {
      const bool wanted = peer->rank() == rank;
      Runner runner(c, inputs, std::move(peer));
      Bytes result = runner.eager(inputs);
      if (wanted) expected = std::move(result);
    });
    Runner runner(c, inputs, join(path, rank));
    for (int round = 0; round < 3; ++round) EXPECT_EQ(runner.eager(inputs), expected);
    EXPECT_FALSE(std::filesystem::exists(path + "." + std::to_string(rank)));
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(NcclProcesses, OneGpuForTwoIsRefusedBeforeNcclStarts) {
  const std::string path = meeting_path("same");
  const auto codes = fork_ranks(2, [&](int rank) {
    const NcclMember member{.rank = rank, .topology = Topology::blocks(2, 1)};
    const auto made = make_nccl_communicator(path, member, device_of(0));
    ASSERT_FALSE(made.ok());
    EXPECT_THAT(made.error().message, HasSubstr("ranks 0 and 1 have the same GPU"));
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

/// Rank 1 dies while rank 0 runs `step` again and again. Rank 0 must hear of it within the
/// deadline.
void expect_survivor(const char* name,
                     const std::function<std::function<Status()>(Runner&)>& make_step) {
  testkit::Case c = two_ranks();
  const tool::Inputs inputs = testkit::inputs_of(c);
  const std::string path = meeting_path(name);
  const auto codes = fork_ranks(2, [&](int rank) {
    const auto communicator = join(path, rank);
    Runner runner(c, inputs, communicator, 5s);
    runner.eager(inputs);
    const auto step = make_step(runner);
    if (rank == 1) die_soon();
    const auto begin = Clock::now();
    Status status;
    while (status.ok() && Clock::now() - begin < 30s) {
      status = step();
      (void)cuda::synchronize(runner.stream.get()).ok();
      if (status.ok()) status = communicator->health();
    }
    EXPECT_LT(Clock::now() - begin, 12s);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost) << status.error().text();
    fprintf(stderr, "survivor: %s\n", status.error().text().c_str());
    _exit(::testing::Test::HasFailure() ? 1 : 0);  // a device whose peer died may not tidy up
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
}

TEST(NcclProcesses, AKilledRankEndsEagerCallsAtTheDeadline) {
  expect_survivor("killed",
                  [](Runner& runner) { return [&runner]() -> Status { return runner.queue(); }; });
}

TEST(NcclProcesses, AKilledRankEndsReplaysAtTheDeadline) {
  expect_survivor("replays", [](Runner& runner) {
    const auto graph =
        std::make_shared<Graph>(runner.stream.get(), [&runner] { return runner.queue(); });
    return [graph]() -> Status {
      graph->launch();
      return {};
    };
  });
}

}  // namespace
}  // namespace longspan::testing
