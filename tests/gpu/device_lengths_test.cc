// Lengths that come with each call, on a device: results are those of the problem of these lengths,
// with NaN behind them, for every provider that offers to trim tiles and every strategy.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gpu/graph.h"
#include "gpu/on_device.h"
#include "gpu/peer/device_flight.h"
#include "testkit/pairs.h"

namespace longspan::testing {
namespace {

using testkit::Case;
using testkit::StrategyPair;

struct Shape {
  std::string provider;
  std::string problem;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.provider << " " << shape.problem;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"cuda/reference", "dtype=f32 heads=4/2 dim=40 lengths=90,7,33 mask=causal"},
      {"cuda/reference",
       "dtype=bf16 heads=2/1 dim=16 lengths=50,61 kv_lengths=80,20 mask=none window=9,4 "
       "sink=learnable softcap=3 dropout=0.2 alibi=default bias=b,h max_logit=true"},
      {"cudnn", "dtype=bf16 heads=8/2 dim=64 lengths=300,17,130 mask=causal"},
      {"cudnn", "dtype=f16 heads=4/4 dim=128 lengths=200,200 mask=none"},
      {"cudnn", "dtype=bf16 heads=4/2 dim=192 dim_v=128 lengths=260,90 mask=causal sink=learnable"},
      {"cudnn",
       "dtype=bf16 heads=4/2 dim=64 lengths=257,300 kv_lengths=190,64 mask=none "
       "window=70,11"},
      {"cudnn",
       "dtype=bf16 heads=4/2 dim=64 lengths=64,40,300,1,64,129 mask=causal prefix="
       "10,0,7,1,0,200"},
  };
  return all;
}

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  return std::move(result).value();
}

class DeviceLengths : public ::testing::TestWithParam<Shape> {};

void expect_right_on_device(const Case& c, const tool::Inputs& inputs,
                            const tool::Reference& reference) {
  SCOPED_TRACE(testkit::text(c));
  const auto results = run_on_device(c, inputs);
  ASSERT_TRUE(results.ok()) << results.error().text();
  expect_right(inputs, *results, reference);
}

TEST_P(DeviceLengths, ResultsAreThoseOfTheLengths) {
  const std::vector<std::string> partitions = {"contiguous", "zigzag", "striped"};
  size_t draw = 0;
  Case c{.problem = GetParam().problem + " device_lengths=true", .provider = GetParam().provider};
  for (c.seed = 0; c.seed < 2; ++c.seed) {
    const tool::Inputs inputs = testkit::inputs_of(c);
    const tool::Reference reference = testkit::reference_of(inputs);
    for (const StrategyPair& pair : testkit::diagonal_pairs()) {
      for (const int ranks : {1, 2, 4}) {
        c.forward = pair.forward;
        c.backward = pair.backward;
        c.ranks = ranks;
        c.nodes = pair.forward == "hybrid" && ranks > 1 ? 2 : 1;
        c.partition = partitions[draw++ % 3];
        expect_right_on_device(c, inputs, reference);
      }
    }
  }
}

/// One rank's flight as whole results.
void expect_right_flight(const tool::Inputs& inputs, std::shared_ptr<const Call> call,
                         DeviceFlight& flight) {
  tool::ResultTensors& tensors = *must(flight.download());
  tool::RankResults rank;
  rank.call = std::move(call);
  static_cast<tool::ResultTensors&>(rank) = std::move(tensors);
  tool::GroupResults whole = tool::make_group_results(inputs.problem);
  tool::gather(rank, rank.call->partition(), 0, whole);
  tensors = std::move(static_cast<tool::ResultTensors&>(rank));
  expect_right(inputs, whole, testkit::reference_of(inputs));
}

TEST(DeviceLengthsOfCudnn, ReplaysAreRightForTheLengthsOfTheirTime) {
  const Case c{.problem =
                   "dtype=bf16 heads=8/2 dim=64 lengths=300,130,200 mask=causal "
                   "device_lengths=true",
               .provider = "cudnn"};
  const Device device = must(cuda_device(0));
  const cuda::DeviceScope scope(0);
  const auto communicator =
      must(make_peer_communicators(Topology::blocks(1, 1), std::vector{device}))[0];
  const auto engine = must(Engine::create(testkit::options_of(c), communicator, device));
  const tool::Inputs empty = testkit::inputs_of(c, {0, 0, 0}, {0, 0, 0});
  const auto call = must(engine->prepare(empty.declared()));
  const auto flight = must(DeviceFlight::make(empty, call, communicator, device));
  const cuda::OwnedStream stream = must(cuda::OwnedStream::make());
  ASSERT_TRUE(flight->load(empty).ok());
  ASSERT_TRUE(flight->queue(*engine, stream.get()).ok());
  const Graph graph(stream.get(), [&] { return flight->queue(*engine, stream.get()); });
  using Lengths = std::vector<int32_t>;
  for (const Lengths& lengths : {Lengths{300, 130, 200}, {0, 130, 1}, {17, 0, 200}, {0, 0, 0}}) {
    const tool::Inputs inputs = testkit::inputs_of(c, lengths, lengths);
    SCOPED_TRACE(inputs.problem.text());
    ASSERT_TRUE(flight->load(inputs).ok());
    graph.replay();
    Stream waited = stream.get();
    const Status status = engine->synchronize(waited);
    ASSERT_TRUE(status.ok()) << status.error().text();
    expect_right_flight(inputs, call, *flight);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceLengths, ::testing::ValuesIn(shapes()));

}  // namespace
}  // namespace longspan::testing
