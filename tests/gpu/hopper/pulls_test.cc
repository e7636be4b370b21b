// One launch that pulls keys and values, ranks as threads: right by the bars of GPUs for every
// shape, the same bits whenever they arrive, and a stated error when they never do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "cuda/words.h"
#include "gpu/graph.h"
#include "gpu/hopper/pulling.h"
#include "gpu/on_device.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testkit::Case;
using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

std::vector<Device> devices_of(int ranks, bool spread) {
  std::vector<Device> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(device_of(rank, spread));
  return devices;
}

struct Shape {
  std::string problem, partition;
};
void PrintTo(const Shape& s, std::ostream* out) { *out << s.problem << ", " << s.partition; }

class Pulls : public ::testing::TestWithParam<Shape> {};

void expect_right_over_ranks(const Shape& shape, int ranks, bool spread) {
  constexpr int kRepeats = 5;
  const Case c{.problem = shape.problem, .ranks = ranks, .partition = shape.partition};
  SCOPED_TRACE(testkit::text(c));
  const tool::Inputs inputs = testkit::inputs_of(c);
  tool::Progress progress(false);
  const auto reference = must(tool::compute_reference(inputs, first_device(), progress));
  const tool::GroupTask task{.inputs = &inputs,
                             .options = pulling_options(c),
                             .topology = Topology::blocks(ranks, 1),
                             .communicator = "peer",
                             .device = first_device(),
                             .devices = devices_of(ranks, spread),
                             .repeat = kRepeats};
  const tool::GroupResults results = must(tool::run_threads(task));
  EXPECT_TRUE(pulls(*results.call)) << results.call->explanation().forward.strategy_reason;
  EXPECT_EQ(results.unequal_repeats, 0);
  expect_right(inputs, results, reference);
}

TEST_P(Pulls, AreRightOnOneDevice) {
  for (const int ranks : {2, 3, 4}) expect_right_over_ranks(GetParam(), ranks, false);
}

TEST_P(Pulls, AreRightOnAllDevices) {
  if (must(cuda_device_count()) < 2) GTEST_SKIP() << "needs two devices";
  for (const int ranks : {2, 4}) expect_right_over_ranks(GetParam(), ranks, true);
}

INSTANTIATE_TEST_SUITE_P(
    Shape, Pulls,
    ::testing::Values(
        Shape{"dtype=bf16 heads=4/2 dim=128 lengths=2048 mask=causal", "zigzag"},
        Shape{"dtype=bf16 heads=4/2 dim=128 lengths=1111 mask=causal", "zigzag"},
        Shape{"dtype=f16 heads=6/2 dim=64 lengths=700,0,333,1 mask=causal", "contiguous"},
        Shape{"dtype=bf16 heads=4/4 dim=96 lengths=1000 mask=none", "balanced"},
        Shape{"dtype=f16 heads=2/1 dim=192 dim_v=128 lengths=900,500 mask=bottom_right", "zigzag"},
        Shape{"dtype=bf16 heads=2/1 dim=192 lengths=1200 mask=causal", "zigzag"},
        Shape{"dtype=bf16 heads=4/2 dim=128 lengths=3000 mask=causal window=300,0", "contiguous"},
        Shape{"dtype=bf16 heads=4/2 dim=256 lengths=1500 mask=causal", "zigzag"},
        Shape{"dtype=bf16 heads=4/1 dim=72 lengths=512,512 mask=causal", "zigzag"},
        Shape{"dtype=bf16 heads=2/2 dim=128 lengths=300,900 kv_lengths=800,200 mask=none",
              "balanced"}));

TEST(PullsOff, KeysAreExchangedBefore) {
  const Case c = pulling_case();
  const tool::Inputs inputs = testkit::inputs_of(c);
  tool::Progress progress(false);
  const auto reference = must(tool::compute_reference(inputs, first_device(), progress));
  Options options = pulling_options(c);
  options.pull = false;
  const tool::GroupResults results = must(tool::run_threads({.inputs = &inputs,
                                                             .options = options,
                                                             .topology = Topology::blocks(2, 1),
                                                             .communicator = "peer",
                                                             .device = first_device(),
                                                             .devices = devices_of(2, false)}));
  EXPECT_FALSE(pulls(*results.call));
  expect_right(inputs, results, reference);
}

/// Runs body(rank, barrier) on a thread of each rank.
void on_ranks(const Case& c, const tool::Inputs& inputs, std::chrono::milliseconds deadline,
              const std::function<void(PullingRank&, std::barrier<>&)>& body) {
  std::barrier<> together(c.ranks);
  auto made =
      must(make_peer_communicators(Topology::blocks(c.ranks, 1), devices_of(c.ranks, true)));
  testkit::for_each_rank(std::move(made), [&](std::shared_ptr<Communicator> communicator) {
    const Device device = device_of(communicator->rank(), true);
    PullingRank rank(c, inputs, std::move(communicator), device, deadline);
    body(rank, together);
    together.arrive_and_wait();
  });
}

TEST(PullsInTime, LateRanksChangeNoBit) {
  Case c = pulling_case();
  c.ranks = 3;
  const tool::Inputs inputs = testkit::inputs_of(c);
  on_ranks(c, inputs, 30s, [&](PullingRank& rank, std::barrier<>& together) {
    const Bytes expected = rank.eager(inputs);
    for (int round = 0; round < 6; ++round) {
      expect_ok(rank.flight->load(inputs));
      together.arrive_and_wait();
      if (round % c.ranks == rank.communicator->rank()) std::this_thread::sleep_for(30ms);
      expect_ok(rank.queue());
      EXPECT_EQ(rank.results(), expected) << "round " << round;
      together.arrive_and_wait();
    }
  });
}

TEST(PullsInTime, ReplaysEqualEagerCalls) {
  Case c = pulling_case();
  const tool::Inputs first = testkit::inputs_of(c);
  c.seed = 1;
  const tool::Inputs second = testkit::inputs_of(c);
  on_ranks(c, first, 30s, [&](PullingRank& rank, std::barrier<>& together) {
    const Bytes expected_first = rank.eager(first);
    together.arrive_and_wait();
    const Bytes expected_second = rank.eager(second);
    together.arrive_and_wait();
    const Graph graph(rank.stream.get(), [&] { return rank.queue(); });
    together.arrive_and_wait();
    const auto replay = [&](const tool::Inputs& inputs, int times) {
      expect_ok(rank.flight->load(inputs));
      together.arrive_and_wait();
      for (int i = 0; i < times; ++i) graph.launch();
      return rank.results();
    };
    EXPECT_EQ(replay(first, 1), expected_first);
    together.arrive_and_wait();
    EXPECT_EQ(replay(second, 5), expected_second);
    together.arrive_and_wait();
    EXPECT_EQ(rank.eager(first), expected_first) << "between replays";
    together.arrive_and_wait();
    EXPECT_EQ(replay(first, 20), expected_first);
  });
}

// NOTE: no ASSERT, after which the other rank would wait at the barrier for ever.
void expect_lost(const Status& health, const char* who) {
  EXPECT_FALSE(health.ok());
  if (health.ok()) return;
  EXPECT_EQ(health.error().code, ErrorCode::kPeerLost) << health.error().text();
  EXPECT_THAT(health.error().message, HasSubstr(who));
}

TEST(PullsInTime, KeysThatNeverComeEndAsALostPeer) {
  const Case c = pulling_case();
  const tool::Inputs inputs = testkit::inputs_of(c);
  on_ranks(c, inputs, 700ms, [&](PullingRank& rank, std::barrier<>& together) {
    (void)rank.eager(inputs);
    together.arrive_and_wait();
    const bool stuck = rank.communicator->rank() == 1;
    // NOTE: one for each would be freed, which waits for the device, while the other is stuck.
    cuda::Memory gate;
    cuda::OwnedStream other = must(cuda::OwnedStream::make());
    if (stuck) {  // queued by the host, and never reached by the device
      gate = must(cuda::Memory::make(sizeof(uint32_t)));
      expect_ok(cuda::fill(gate.data(), 0, sizeof(uint32_t)));
      cuda::WordOperations words;
      words.wait(static_cast<uint32_t*>(gate.data()));
      expect_ok(words.enqueue(rank.stream.get()));
    }
    const auto begin = Clock::now();
    expect_ok(rank.flight->forward(*rank.engine, rank.stream.get()));
    if (!stuck) {
      expect_ok(cuda::synchronize(rank.stream.get()));
      EXPECT_LT(Clock::now() - begin, 10s);
      expect_lost(rank.communicator->health(), "rank 1");
    }
    together.arrive_and_wait();
    if (stuck) {
      while (rank.communicator->health().ok() && Clock::now() - begin < 10s) {
        std::this_thread::sleep_for(1ms);  // its own deadline may end a little later
      }
      cuda::WordOperations words;
      words.write(static_cast<uint32_t*>(gate.data()), 1);
      expect_ok(words.enqueue(other.get()));
      expect_ok(cuda::synchronize(rank.stream.get()));
      expect_lost(rank.communicator->health(), "rank 0");
    }
    together.arrive_and_wait();
  });
}

}  // namespace
}  // namespace longspan::testing
