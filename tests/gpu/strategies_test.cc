// Every strategy with ranks that share a GPU: right by the bars of GPUs, near the error of one
// rank, the same bits on every run.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "gpu/on_device.h"
#include "testkit/pairs.h"

namespace longspan::testing {
namespace {

using testkit::Case;
using testkit::StrategyPair;

struct Lane {
  std::string provider;
  std::string problem;
  // Of the error of one rank: 1.35 with partial results in 16 bits, or few numbers (dsink).
  double factor;
};

void PrintTo(const Lane& lane, std::ostream* out) { *out << lane.provider << " " << lane.problem; }

const std::vector<Lane>& lanes() {
  static const std::vector<Lane> all = {
      {"cuda/reference", "dtype=f32 heads=6/2 dim=64 dim_v=48 lengths=300,0,77 mask=causal", 1.05},
      {"cudnn", "dtype=bf16 heads=16/8 dim=128 lengths=1500,700 mask=causal deterministic=true",
       1.35},
      {"hopper", "dtype=bf16 heads=16/8 dim=192 lengths=900,500 mask=causal", 1.15},
      {"hopper",
       "dtype=bf16 heads=16/8 dim=192 lengths=700,300 mask=causal softcap=30 alibi=default "
       "dropout=0.1 sink=learnable",
       1.35},
  };
  return all;
}

class Strategies : public ::testing::TestWithParam<Lane> {};

TEST_P(Strategies, AnyNumberOfRanksOnOneDevice) {
  constexpr int kRepeats = 3;
  Case c{.problem = GetParam().problem, .partition = "auto", .provider = GetParam().provider};
  const tool::Inputs inputs = testkit::inputs_of(c);
  tool::Progress progress(false);
  const auto reference = tool::compute_reference(inputs, first_device(), progress);
  ASSERT_TRUE(reference.ok()) << reference.error().text();
  std::vector<tool::NamedMeasure> alone;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const StrategyPair& pair : testkit::diagonal_pairs()) {
      c.ranks = ranks;
      c.nodes = pair.forward == "hybrid" && ranks % 2 == 0 ? 2 : 1;
      c.forward = pair.forward;
      c.backward = pair.backward;
      SCOPED_TRACE(testkit::text(c));
      const auto results = run_on_device(c, inputs, kRepeats);
      ASSERT_TRUE(results.ok()) << results.error().text();
      EXPECT_EQ(results->unequal_repeats, 0);
      const auto measures = expect_right(inputs, *results, *reference);
      if (alone.empty()) alone = measures;
      expect_all_pass(tool::check_against_one_rank(measures, alone, GetParam().factor));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lane, Strategies, ::testing::ValuesIn(lanes()));

struct Packed {
  std::string problem, partition;
};

void PrintTo(const Packed& p, std::ostream* out) { *out << p.problem << ", " << p.partition; }

class GatheredKeys : public ::testing::TestWithParam<Packed> {};

/// Rates by which memory alone decides: these problems are small.
Options gathering_options(const Case& c) {
  Options options = testkit::options_of(c);
  options.rates.launch_seconds = options.rates.node_latency = 0;
  options.rates.node_bytes = 1e15;
  return options;
}

/// Whole gradients of keys of all ranks, by a provider whose partial results have 16 bits.
TEST_P(GatheredKeys, GradientsAreWhole) {
  constexpr int kRepeats = 3;
  Case c{.problem = GetParam().problem,
         .forward = "all_gather",
         .backward = "all_gather",
         .partition = GetParam().partition,
         .provider = "cudnn"};
  const tool::Inputs inputs = testkit::inputs_of(c);
  tool::Progress progress(false);
  const Device device = first_device();
  const auto reference = tool::compute_reference(inputs, device, progress);
  ASSERT_TRUE(reference.ok()) << reference.error().text();
  std::vector<tool::NamedMeasure> alone;
  for (c.ranks = 1; c.ranks <= 4; ++c.ranks) {
    SCOPED_TRACE(testkit::text(c));
    const auto results =
        tool::run_threads({.inputs = &inputs,
                           .options = gathering_options(c),
                           .topology = Topology::blocks(c.ranks, 1),
                           .communicator = "peer",
                           .device = device,
                           .devices = std::vector<Device>(static_cast<size_t>(c.ranks), device),
                           .repeat = kRepeats});
    ASSERT_TRUE(results.ok()) << results.error().text();
    EXPECT_TRUE(results->call->schedule(Direction::kBackward).tiles.features.whole)
        << results->call->explanation().backward.strategy_reason;
    EXPECT_EQ(results->unequal_repeats, 0);
    const auto measures = expect_right(inputs, *results, *reference);
    if (alone.empty()) alone = measures;
    expect_all_pass(tool::check_against_one_rank(measures, alone, 1.35));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, GatheredKeys,
    ::testing::Values(Packed{"dtype=bf16 heads=8/2 dim=128 lengths=3000 mask=causal window=400,0 "
                             "deterministic=true",
                             "contiguous"},
                      Packed{"dtype=f16 heads=4/4 dim=64 lengths=900,300,1,1400,800 mask=causal "
                             "deterministic=true",
                             "balanced"},
                      Packed{"dtype=bf16 heads=4/1 dim=128 lengths=1100 kv_lengths=1500 mask=none "
                             "deterministic=true",
                             "contiguous"}));

}  // namespace
}  // namespace longspan::testing
