// Engines whose forward pulls keys and values: all_gather over peer, computed by hopper.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/must.h"
#include "gpu/peer/device_flight.h"
#include "testkit/conformance.h"

namespace longspan::testing {

/// Backward, which hopper leaves to others, tells that O and LSE are right as well.
inline Options pulling_options(const testkit::Case& c) {
  Options options = testkit::options_of(c);
  options.forward = {"all_gather", {RoutingMode::kRequire, "hopper"}};
  options.backward = {"ring", {RoutingMode::kRequire, "cuda/reference"}};
  return options;
}

inline bool pulls(const Call& call) {
  for (const Step& step : call.schedule(Direction::kForward).steps) {
    if (step.kind == StepKind::kPull) return true;
  }
  return false;
}

/// One rank's engine, call and stream.
struct PullingRank {
  PullingRank(const testkit::Case& c, const tool::Inputs& inputs,
              std::shared_ptr<Communicator> over, const Device& device,
              std::chrono::milliseconds deadline = std::chrono::seconds(30))
      : scope(device.ordinal),
        communicator(std::move(over)),
        stream(must(cuda::OwnedStream::make())) {
    Options options = pulling_options(c);
    options.deadline = deadline;
    engine = must(Engine::create(options, communicator, device));
    call = must(engine->prepare(inputs.problem));
    EXPECT_TRUE(pulls(*call)) << call->explanation().forward.strategy_reason;
    flight = must(DeviceFlight::make(inputs, call, communicator, device));
  }

  Status queue() { return flight->queue(*engine, stream.get()); }
  std::vector<std::byte> results() {
    expect_ok(cuda::synchronize(stream.get()));
    expect_ok(communicator->health());
    return must(flight->results());
  }
  std::vector<std::byte> eager(const tool::Inputs& inputs) {
    expect_ok(flight->load(inputs));
    expect_ok(queue());
    return results();
  }

  cuda::DeviceScope scope;
  std::shared_ptr<Communicator> communicator;
  cuda::OwnedStream stream;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Call> call;
  std::unique_ptr<DeviceFlight> flight;
};

inline testkit::Case pulling_case() {
  testkit::Case c;
  c.problem = "dtype=bf16 heads=4/2 dim=128 lengths=1300,177 mask=causal";
  c.ranks = 2;
  c.partition = "zigzag";
  return c;
}

}  // namespace longspan::testing
