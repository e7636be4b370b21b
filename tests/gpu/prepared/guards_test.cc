// Promises with prepared kernels in report mode: prepared declines lengths that come with calls,
// computes where they are promised, and outputs of a call that breaks the promise become NaN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "gpu/prepared/test_store.h"
#include "longspan/libraries.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;
using Lengths = std::vector<int32_t>;

const Lengths kFull = {300, 300};

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  return std::move(result).value();
}

/// One rank on device 0.
struct Bench {
  explicit Bench(std::vector<Promise> promises, OutputFill fill = OutputFill::kElide)
      : inputs(testkit::inputs_of({.problem = "dtype=bf16 heads=4/2 dim=128 lengths=300,300 "
                                              "mask=causal device_lengths=true"},
                                  kFull, kFull)) {
    EXPECT_TRUE(set_prepared_store(test_store()).ok());
    communicator = must(make_peer_communicators(Topology::blocks(1, 1), std::vector{device}))[0];
    Options options = testkit::options_of({.provider = "prepared"});
    options.promises = std::move(promises);
    options.output_fill = fill;
    options.forward.strategy = "all_gather";
    engine = must(Engine::create(options, communicator, device));
  }
  Result<std::shared_ptr<const Call>> prepare() { return engine->prepare(inputs.declared()); }
  void take_off() {
    flight = must(DeviceFlight::make(inputs, must(prepare()), communicator, device));
  }
  void load(const Lengths& q) {
    EXPECT_TRUE(flight->load(inputs).ok());
    EXPECT_TRUE(flight->load_lengths(q, kFull).ok());
  }
  Status synchronize() {
    Stream waited = own_stream.get();
    return engine->synchronize(waited);
  }

  Device device = must(cuda_device(0));
  cuda::DeviceScope scope{0};
  tool::Inputs inputs;
  std::shared_ptr<Communicator> communicator;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<DeviceFlight> flight;
  cuda::OwnedStream own_stream = must(cuda::OwnedStream::make());
};

TEST(PreparedGuards, LengthsOfEachCallNeedAPromise) {
  Bench bench({});
  const auto call = bench.prepare();
  ASSERT_FALSE(call.ok());
  EXPECT_THAT(call.error().message, HasSubstr("prepared declines (device_lengths)"));
}

TEST(PreparedGuards, CheckEveryPromiseAtEveryReplay) {
  for (const Promise promise :
       {Promise::kUniformLengths, Promise::kCompactLengths, Promise::kPitchedAllGather}) {
    SCOPED_TRACE(name(promise));
    Bench bench({promise});
    bench.take_off();
    Engine& engine = *bench.engine;
    const Stream stream = bench.own_stream.get();
    bench.load(kFull);
    ASSERT_TRUE(bench.flight->queue(engine, stream).ok());
    ASSERT_TRUE(bench.synchronize().ok());
    EXPECT_TRUE(bench.flight->results().ok());  // no NaN
    const Graph graph(stream, [&] { return bench.flight->queue(engine, stream); });
    for (int round = 0; round < 2; ++round) {
      bench.load({300, 299});
      graph.launch();
      const Status broken = bench.synchronize();
      ASSERT_FALSE(broken.ok());
      EXPECT_EQ(broken.error().code, ErrorCode::kGuardFailed);
      EXPECT_THAT(broken.error().message, HasSubstr(std::string(name(promise)) + ": lengths_q"));
      for (const char* result : {"o", "lse", "dq", "dk", "dv"}) {
        EXPECT_EQ(must(bench.flight->numbers(result)), 0) << result;
      }
      bench.load(kFull);
      graph.replay();
      EXPECT_TRUE(bench.synchronize().ok());
      EXPECT_TRUE(bench.flight->results().ok());
    }
  }
}

TEST(PreparedGuards, FilledOutputsHaveTheBitsOfElidedFills) {
  std::vector<std::byte> forward[2];
  for (const OutputFill fill : {OutputFill::kElide, OutputFill::kAlways}) {
    Bench bench({Promise::kCompactLengths}, fill);
    bench.take_off();
    bench.load(kFull);
    const bool always = fill == OutputFill::kAlways;
    ASSERT_TRUE(bench.flight->forward(*bench.engine, bench.own_stream.get()).ok());
    const int64_t after_forward = bench.engine->counters().fill_steps;
    EXPECT_EQ(after_forward, always ? 2 : 0);
    ASSERT_TRUE(bench.flight->backward(*bench.engine, bench.own_stream.get()).ok());
    EXPECT_EQ(bench.engine->counters().fill_steps - after_forward, always ? 3 : 0);
    ASSERT_TRUE(bench.synchronize().ok());
    tool::ResultTensors& results = *must(bench.flight->download());
    const auto* const o = results.o.memory.data();  // gradients are sums in no fixed order
    forward[always ? 1 : 0].assign(o, o + results.o.memory.size());
    EXPECT_TRUE(bench.flight->results().ok());
  }
  EXPECT_EQ(forward[0], forward[1]);
}

}  // namespace
}  // namespace longspan::testing
