// Guards in trap mode: each broken promise ends a process of its own. Children first do a good call
// and say so, so that one that never ran is not taken for one that trapped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/fork_ranks.h"
#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using Lengths = std::vector<int32_t>;

constexpr int kTrapped = 42;
const Lengths kFull = {70, 45};

/// How one child breaks a promise.
struct Breach {
  Direction direction;
  bool uniform;  // the promise: uniform lengths, or lengths within capacity
  bool replay;   // in a captured graph
  Lengths q, k;
};

/// Both directions in each way.
std::vector<Breach> breaches() {
  std::vector<Breach> all;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    all.push_back({direction, false, false, {71, 45}, kFull});
    all.push_back({direction, false, false, kFull, {70, 46}});
    all.push_back({direction, false, false, {70, -1}, kFull});
    all.push_back({direction, false, true, {70, 46}, kFull});
    all.push_back({direction, true, false, {70, 44}, kFull});
    all.push_back({direction, true, true, kFull, {0, 45}});
  }
  return all;
}

/// Runs on its own device context; ends the process where anything but the trap goes wrong.
class Child {
 public:
  explicit Child(const Breach& breach) : breach_(breach) {}

  /// kTrapped, or the number of the step that went wrong. `ran`: told once the good call is done.
  int run(int ran) {
    auto device = cuda_device(0);
    if (!device.ok()) return 2;
    const cuda::DeviceScope scope(0);
    if (!set_up(*device).ok()) return 3;
    auto stream = cuda::OwnedStream::make();
    if (!stream.ok()) return 4;
    Stream queue = stream->get();
    if (!call(queue).ok() || !engine_->synchronize(queue).ok()) return 5;
    std::optional<Graph> graph;
    if (breach_.replay) graph.emplace(queue, [&] { return call(queue); });
    const char byte = 1;
    if (write(ran, &byte, 1) != 1) return 6;
    if (!flight_->load_lengths(breach_.q, breach_.k).ok()) return 7;
    if (graph) {
      graph->launch();
    } else if (!call(queue).ok()) {
      return 8;
    }
    const Status status = engine_->synchronize(queue);
    return !status.ok() && status.error().code == ErrorCode::kDriver ? kTrapped : 9;
  }

 private:
  Status set_up(const Device& device) {
    const tool::Inputs inputs =
        testkit::inputs_of({.problem = "dtype=bf16 heads=4/2 dim=64 lengths=70,45 mask=causal "
                                       "device_lengths=true"},
                           kFull, kFull);
    LONGSPAN_TRY(auto communicators,
                 make_peer_communicators(Topology::blocks(1, 1), std::vector{device}));
    Options options = testkit::options_of({.provider = "cuda/reference"});
    options.guards = GuardPolicy::kTrap;
    if (breach_.uniform) options.promises = {Promise::kUniformLengths};
    LONGSPAN_TRY(engine_, Engine::create(options, communicators[0], device));
    LONGSPAN_TRY(const auto prepared, engine_->prepare(inputs.declared()));
    LONGSPAN_TRY(flight_, DeviceFlight::make(inputs, prepared, communicators[0], device));
    return flight_->load(inputs);
  }
  Status call(Stream stream) {
    return breach_.direction == Direction::kForward ? flight_->forward(*engine_, stream)
                                                    : flight_->backward(*engine_, stream);
  }

  const Breach& breach_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<DeviceFlight> flight_;
};

TEST(GuardTraps, EndEachOfTheChildren) {
  const std::vector<Breach> all = breaches();
  ASSERT_EQ(all.size(), 12u);
  size_t ran = 0;
  size_t trapped = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    std::array<int, 2> pipe_ends{};
    ASSERT_EQ(pipe(pipe_ends.data()), 0);
    const std::vector<int> codes = fork_ranks(1, [&](int) {
      _exit(Child(all[i]).run(pipe_ends[1]));  // nothing of a trapped context can be released
    });
    close(pipe_ends[1]);
    char byte = 0;
    ran += read(pipe_ends[0], &byte, 1) == 1 ? 1 : 0;
    close(pipe_ends[0]);
    EXPECT_EQ(codes[0], kTrapped) << "child " << i;
    trapped += codes[0] == kTrapped ? 1 : 0;
  }
  EXPECT_EQ(ran, all.size()) << "children whose good call was seen";
  EXPECT_EQ(trapped, all.size());
}

}  // namespace
}  // namespace longspan::testing
