// What the tests of nccl share: two ranks on two GPUs, and one rank's call.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/runtime.h"
#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "longspan/communicator.h"
#include "testkit/conformance.h"

namespace longspan::testing {

using Bytes = std::vector<std::byte>;

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  return std::move(result).value();
}

inline void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().text(); }

inline Device device_of(int rank) { return must(cuda_device(rank)); }

inline Options options_of(const testkit::Case& c, std::chrono::milliseconds deadline) {
  Options options = testkit::options_of(c);
  options.deadline = deadline;
  return options;
}

/// An engine on one rank, its call and a stream.
struct Runner {
  Runner(const testkit::Case& c, const tool::Inputs& inputs, std::shared_ptr<Communicator> over,
         std::chrono::milliseconds deadline = std::chrono::seconds(60))
      : device(device_of(over->rank())),
        scope(device.ordinal),
        communicator(std::move(over)),
        engine(must(Engine::create(options_of(c, deadline), communicator, device))),
        flight(must(DeviceFlight::make(inputs, must(engine->prepare(inputs.problem)), communicator,
                                       device))),
        stream(must(cuda::OwnedStream::make())) {}

  Status queue() { return flight->queue(*engine, stream.get()); }
  Graph capture() {
    return Graph(stream.get(), [this] { return queue(); });
  }
  Bytes eager(const tool::Inputs& inputs) {
    expect_ok(flight->load(inputs));
    expect_ok(queue());
    return results();
  }
  Bytes replay(const Graph& graph, const tool::Inputs& inputs) {
    expect_ok(flight->load(inputs));
    graph.launch();
    return results();
  }
  Bytes results() {
    expect_ok(cuda::synchronize(stream.get()));
    expect_ok(communicator->health());
    return must(flight->results());
  }

  Device device;
  cuda::DeviceScope scope;
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<DeviceFlight> flight;
  cuda::OwnedStream stream;
};

/// A case of two ranks.
inline testkit::Case two_ranks(const std::string& forward = "ring",
                               const std::string& backward = "ring") {
  testkit::Case c;
  c.problem = "dtype=bf16 heads=8/2 dim=64 lengths=203,90 mask=causal";
  c.ranks = 2;
  c.nodes = forward == "hybrid" ? 2 : 1;
  c.forward = forward;
  c.backward = backward;
  c.partition = "zigzag";
  c.provider = "cuda/reference";
  return c;
}

}  // namespace longspan::testing
