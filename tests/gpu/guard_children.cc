#include "gpu/guard_children.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "gpu/fork_ranks.h"
#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

constexpr int kTrapped = 42;

/// Runs on its own device context; ends the process where anything but the trap goes wrong.
class Child {
 public:
  Child(const Guarded& guarded, const Breach& breach) : guarded_(guarded), breach_(breach) {}

  /// kTrapped, or the number of the step that went wrong. `ran`: told once the good call is done.
  int run(int ran) {
    if (!guarded_.open().ok()) return 1;
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
    } else if (const Status called = call(queue); !called.ok()) {
      return trapped(called) ? kTrapped : 8;  // a later launch of it came after the trap
    }
    return trapped(engine_->synchronize(queue)) ? kTrapped : 9;
  }

 private:
  static bool trapped(const Status& status) {
    return !status.ok() && status.error().code == ErrorCode::kDriver;
  }
  Status set_up(const Device& device) {
    const tool::Inputs inputs =
        testkit::inputs_of({.problem = guarded_.problem}, guarded_.full, guarded_.full);
    LONGSPAN_TRY(auto communicators,
                 make_peer_communicators(Topology::blocks(1, 1), std::vector{device}));
    Options options = testkit::options_of({.provider = guarded_.provider});
    options.guards = GuardPolicy::kTrap;
    if (breach_.added) options.promises = {*breach_.added};
    if (breach_.added == Promise::kPitchedAllGather) options.forward.strategy = "all_gather";
    LONGSPAN_TRY(engine_, Engine::create(options, communicators[0], device));
    LONGSPAN_TRY(const auto prepared, engine_->prepare(inputs.declared()));
    LONGSPAN_TRY(flight_, DeviceFlight::make(inputs, prepared, communicators[0], device));
    return flight_->load(inputs);
  }
  Status call(Stream stream) {
    return breach_.direction == Direction::kForward ? flight_->forward(*engine_, stream)
                                                    : flight_->backward(*engine_, stream);
  }

  const Guarded& guarded_;
  const Breach& breach_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<DeviceFlight> flight_;
};

}  // namespace

void expect_traps(const Guarded& guarded, const std::vector<Breach>& breaches) {
  size_t ran = 0;
  size_t trapped = 0;
  for (size_t i = 0; i < breaches.size(); ++i) {
    std::array<int, 2> pipe_ends{};
    ASSERT_EQ(pipe(pipe_ends.data()), 0);
    const std::vector<int> codes = fork_ranks(1, [&](int) {
      // Nothing of a trapped context can be released.
      _exit(Child(guarded, breaches[i]).run(pipe_ends[1]));
    });
    close(pipe_ends[1]);
    char byte = 0;
    ran += read(pipe_ends[0], &byte, 1) == 1 ? 1 : 0;
    close(pipe_ends[0]);
    EXPECT_EQ(codes[0], kTrapped) << "child " << i;
    trapped += codes[0] == kTrapped ? 1 : 0;
  }
  EXPECT_EQ(ran, breaches.size()) << "children whose good call was seen";
  EXPECT_EQ(trapped, breaches.size());
}

}  // namespace longspan::testing
