// Guards of a device in report mode: the outputs of a call that breaks a promise become NaN, the
// engine says so once, and later calls are as any others; replays of a captured graph included.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/graph.h"
#include "gpu/peer/device_flight.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;
using Lengths = std::vector<int32_t>;

constexpr const char* kProblem =
    "dtype=bf16 heads=4/2 dim=64 lengths=70,45 mask=causal device_lengths=true";
const Lengths kFull = {70, 45};

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  return std::move(result).value();
}

void expect_failed(const Status& status, const std::string& text) {
  ASSERT_FALSE(status.ok()) << "expected: " << text;
  EXPECT_EQ(status.error().code, ErrorCode::kGuardFailed) << status.error().text();
  EXPECT_THAT(status.error().message, HasSubstr(text));
}

/// One rank on device 0.
struct Bench {
  explicit Bench(std::vector<Promise> promises = {})
      : inputs(testkit::inputs_of({.problem = kProblem}, kFull, kFull)) {
    const std::shared_ptr<Communicator> communicator =
        must(make_peer_communicators(Topology::blocks(1, 1), std::vector{device}))[0];
    Options options = testkit::options_of({.provider = "cuda/reference"});  // bits repeat
    options.promises = std::move(promises);
    engine = must(Engine::create(options, communicator, device));
    flight = must(
        DeviceFlight::make(inputs, must(engine->prepare(inputs.declared())), communicator, device));
  }

  /// What a call with these lengths starts from: NaN in all that it writes.
  void load(const Lengths& q, const Lengths& k) {
    EXPECT_TRUE(flight->load(inputs).ok());
    EXPECT_TRUE(flight->load_lengths(q, k).ok());
  }
  Stream stream() const { return own_stream.get(); }
  Status synchronize() {
    Stream waited = stream();
    return engine->synchronize(waited);
  }
  int64_t numbers(const char* name) { return must(flight->numbers(name)); }

  Device device = must(cuda_device(0));
  cuda::DeviceScope scope{0};
  tool::Inputs inputs;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<DeviceFlight> flight;
  cuda::OwnedStream own_stream = must(cuda::OwnedStream::make());
};

TEST(Guards, ReportOnceAndPoisonAllOutputs) {
  Bench bench;
  bench.load({70, 46}, kFull);
  ASSERT_TRUE(bench.flight->forward(*bench.engine, bench.stream()).ok());
  expect_failed(bench.synchronize(),
                "promise device_lengths: lengths_q of sequence 1 is 46; it must be 0 to 45");
  for (const char* name : {"o", "lse"}) EXPECT_EQ(bench.numbers(name), 0) << name;
  EXPECT_TRUE(bench.synchronize().ok());
  bench.load(kFull, {-3, 45});
  ASSERT_TRUE(bench.flight->backward(*bench.engine, bench.stream()).ok());
  expect_failed(bench.synchronize(), "lengths_k of sequence 0 is -3");
  for (const char* name : {"dq", "dk", "dv"}) EXPECT_EQ(bench.numbers(name), 0) << name;
  bench.load({70, 0}, kFull);
  ASSERT_TRUE(bench.flight->queue(*bench.engine, bench.stream()).ok());
  EXPECT_TRUE(bench.synchronize().ok());
  EXPECT_TRUE(bench.flight->results().ok());
}

TEST(Guards, TheNextCallReportsAndRunsAllTheSame) {
  Bench bench;
  bench.load({71, 45}, kFull);
  ASSERT_TRUE(bench.flight->forward(*bench.engine, bench.stream()).ok());
  ASSERT_TRUE(cuda::synchronize(bench.stream()).ok());  // not the engine's
  bench.load(kFull, kFull);
  expect_failed(bench.flight->forward(*bench.engine, bench.stream()), "lengths_q of sequence 0");
  ASSERT_TRUE(bench.flight->backward(*bench.engine, bench.stream()).ok());
  EXPECT_TRUE(bench.synchronize().ok());
  EXPECT_TRUE(bench.flight->results().ok());
}

void check_replays(Bench& bench, const Lengths& broken, const std::string& text) {
  bench.load(kFull, kFull);
  ASSERT_TRUE(bench.flight->queue(*bench.engine, bench.stream()).ok());
  ASSERT_TRUE(bench.synchronize().ok());
  const std::vector<std::byte> expected = must(bench.flight->results());
  const Graph graph(bench.stream(),
                    [&] { return bench.flight->queue(*bench.engine, bench.stream()); });
  for (int round = 0; round < 3; ++round) {
    bench.load(kFull, kFull);
    graph.replay();
    EXPECT_TRUE(bench.synchronize().ok());
    EXPECT_EQ(must(bench.flight->results()), expected);
    bench.load(broken, kFull);
    graph.launch();
    expect_failed(bench.synchronize(), text);
    for (const char* name : {"o", "lse", "dq", "dk", "dv"}) EXPECT_EQ(bench.numbers(name), 0);
  }
}

TEST(Guards, CheckEveryReplay) {
  Bench bench;
  check_replays(bench, {70, 1000}, "lengths_q of sequence 1 is 1000; it must be 0 to 45");
}

TEST(Guards, CheckThePromiseOfUniformLengthsAtEveryReplay) {
  Bench bench({Promise::kUniformLengths});
  check_replays(bench, {70, 44},
                "promise uniform_lengths: lengths_q of sequence 1 is 44; it must be 45");
}

}  // namespace
}  // namespace longspan::testing
