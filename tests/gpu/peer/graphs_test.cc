// Calls over several ranks, captured into one graph a rank: replays give the bits of eager calls,
// whatever the inputs hold by then, and eager calls may come between them.
#include <gtest/gtest.h>

#include <barrier>
#include <ostream>
#include <string>
#include <vector>

#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using testkit::Case;
using Bytes = std::vector<std::byte>;

struct Pattern {
  std::string forward, backward;
};
void PrintTo(const Pattern& p, std::ostream* out) { *out << p.forward << "_" << p.backward; }

class Graphs : public ::testing::TestWithParam<std::tuple<int, Pattern>> {};

Device device_of(int rank) {
  const auto count = cuda_device_count();
  const auto device = cuda_device(count.ok() ? rank % *count : 0);
  EXPECT_TRUE(device.ok()) << device.error().text();
  return *device;
}

std::vector<Device> devices_of(int ranks) {
  std::vector<Device> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(device_of(rank));
  return devices;
}

/// One rank: what it owns, and the steps of the test.
class Rank {
 public:
  Rank(const Case& c, const tool::Inputs& inputs, std::shared_ptr<Communicator> communicator,
       std::barrier<>& together)
      : device_(device_of(communicator->rank())), scope_(device_.ordinal), together_(together) {
    engine_ = must(Engine::create(testkit::options_of(c), communicator, device_));
    auto call = must(engine_->prepare(inputs.declared()));
    flight_ = must(DeviceFlight::make(inputs, call, communicator, device_));
    communicator_ = std::move(communicator);
  }

  Bytes eager(const tool::Inputs& inputs) {
    load(inputs);
    expect_ok(flight_->queue(*engine_, stream_.get()));
    return results();
  }
  Bytes replay(const Graph& graph, const tool::Inputs& inputs, int times = 1) {
    load(inputs);
    for (int i = 0; i < times; ++i) graph.launch();
    return results();
  }
  Graph capture() {
    return Graph(stream_.get(), [this] { return flight_->queue(*engine_, stream_.get()); });
  }
  /// All ranks are here, and nothing that they do on the host can wait for the device any more.
  void meet() { together_.arrive_and_wait(); }

 private:
  template <class T>
  static T must(Result<T> result) {
    EXPECT_TRUE(result.ok()) << result.error().text();
    return std::move(result).value();
  }
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().text(); }
  void load(const tool::Inputs& inputs) {
    expect_ok(flight_->load(inputs));
    meet();
  }
  Bytes results() {
    expect_ok(cuda::synchronize(stream_.get()));
    expect_ok(communicator_->health());
    meet();
    return must(flight_->results());
  }

  Device device_;
  cuda::DeviceScope scope_;
  std::barrier<>& together_;
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<DeviceFlight> flight_;
  cuda::OwnedStream stream_ = must(cuda::OwnedStream::make());
};

void check_rank(Rank& rank, const tool::Inputs& first, const tool::Inputs& second) {
  const Bytes expected_first = rank.eager(first);
  const Bytes expected_second = rank.eager(second);
  EXPECT_NE(expected_first, expected_second);
  const Graph graph = rank.capture();
  const Graph other = rank.capture();  // has slots of its own
  rank.meet();
  EXPECT_EQ(rank.replay(graph, first), expected_first);
  EXPECT_EQ(rank.replay(graph, second), expected_second);
  EXPECT_EQ(rank.eager(first), expected_first) << "eager between replays";
  EXPECT_EQ(rank.replay(other, second), expected_second);
  EXPECT_EQ(rank.replay(graph, first, 5), expected_first) << "without the host between";
  EXPECT_EQ(rank.eager(second), expected_second);
}

/// One of the test's cases, on its problem.
Case case_of(const std::tuple<int, Pattern>& parameters, std::string problem) {
  const auto& [ranks, pattern] = parameters;
  Case c;
  c.problem = std::move(problem);
  c.ranks = ranks;
  c.forward = pattern.forward;
  c.backward = pattern.backward;
  c.partition = "zigzag";
  c.provider = "cuda/reference";
  c.nodes = pattern.forward == "hybrid" && ranks % 2 == 0 ? 2 : 1;
  return c;
}

void check_case(const Case& c, const tool::Inputs& first, const tool::Inputs& second) {
  auto made = make_peer_communicators(Topology::blocks(c.ranks, c.nodes), devices_of(c.ranks));
  ASSERT_TRUE(made.ok()) << made.error().text();
  std::barrier<> together(c.ranks);
  testkit::for_each_rank(std::move(made).value(), [&](std::shared_ptr<Communicator> communicator) {
    Rank rank(c, first, std::move(communicator), together);
    check_rank(rank, first, second);
    rank.meet();
  });
}

TEST_P(Graphs, ReplaysEqualEagerCalls) {
  Case c = case_of(GetParam(), "dtype=bf16 heads=8/8 dim=64 lengths=203,90 mask=causal");
  const tool::Inputs first = testkit::inputs_of(c);
  c.seed = 1;
  check_case(c, first, testkit::inputs_of(c));
}

TEST_P(Graphs, ReplaysTakeTheLengthsOfTheirTime) {
  const Case c = case_of(GetParam(),
                         "dtype=bf16 heads=8/8 dim=64 lengths=203,90,64 mask=causal "
                         "device_lengths=true");
  check_case(c, testkit::inputs_of(c, {0, 90, 0}, {0, 90, 0}),
             testkit::inputs_of(c, {203, 0, 17}, {190, 1, 17}));
}

std::string name_of(const ::testing::TestParamInfo<Graphs::ParamType>& info) {
  const auto& [ranks, pattern] = info.param;
  return std::to_string(ranks) + "_" + pattern.forward + "_" + pattern.backward;
}

INSTANTIATE_TEST_SUITE_P(All, Graphs,
                         ::testing::Combine(::testing::Values(2, 3, 4, 8),
                                            ::testing::Values(Pattern{"ring", "ring"},
                                                              Pattern{"all_gather", "all_gather"},
                                                              Pattern{"all_to_all", "all_to_all"},
                                                              Pattern{"hybrid", "hybrid"},
                                                              Pattern{"ring", "head_parallel"})),
                         name_of);

}  // namespace
}  // namespace longspan::testing
