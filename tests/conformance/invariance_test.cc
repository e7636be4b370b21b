// invariant=true: bits do not depend on the number of ranks. Repeats and thread counts change no
// bit of any problem.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "testkit/options.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr const char* kDTypes[] = {"f64", "f32", "f16", "bf16"};
constexpr const char* kEverything =
    "window=30,9 prefix=3,0,5,2 chunk=50 softcap=9 alibi=default bias=b,h sink=learnable "
    "dropout=0.2 dropout_seed=5 max_logit=true";

/// Grouped heads, fewer key heads than most numbers of ranks; ragged lengths.
Case ragged(const std::string& dtype, const std::string& more,
            const std::string& lengths = "97,1,0,70") {
  return {.problem = fmt::format("dtype={} heads=6/2 dim=20 dim_v=12 lengths={} mask=causal {}",
                                 dtype, lengths, more)};
}

tool::GroupResults must_run(const Case& c, const Device& device, int repeat = 1) {
  auto results = run_case(c, inputs_of(c), device, repeat);
  EXPECT_TRUE(results.ok()) << text(c) << ": " << (results.ok() ? "" : results.error().text());
  return results.ok() ? std::move(results).value() : tool::GroupResults{};
}

/// What is promised: parameters' gradients are sums over ranks, which the caller makes.
tool::GroupResults without_parameters(tool::GroupResults results) {
  results.dsink = {};
  results.dbias = {};
  return results;
}

class Invariant : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void expect_equal_for_all_ranks(Case c) const {
    c.provider = std::get<1>(GetParam());
    c.problem += " invariant=true";
    c.forward = "all_to_all";
    c.backward = "all_to_all";
    const tool::GroupResults alone = without_parameters(must_run(c, shared_device()));
    const std::vector<std::string> partitions = {"contiguous", "zigzag", "striped", "balanced"};
    size_t turn = 0;
    for (const StrategyPair& pair : {StrategyPair{"all_to_all", "all_to_all"},
                                     {"all_to_all", "head_parallel"},
                                     {"auto", "auto"}}) {
      for (const int ranks : {1, 2, 3, 4, 8}) {
        c.forward = pair.forward;
        c.backward = pair.backward;
        c.ranks = ranks;
        c.nodes = ranks % 2 == 0 ? 2 : 1;
        c.partition = partitions[turn++ % partitions.size()];
        const tool::GroupResults results = without_parameters(must_run(c, shared_device()));
        EXPECT_EQ(different_results(results, alone), "") << text(c);
      }
    }
  }
};

TEST_P(Invariant, EveryOption) {
  const char* const dtype = std::get<0>(GetParam());
  for (const Option& option : options()) {
    expect_equal_for_all_ranks(with_option(ragged(dtype, "", "41,1,0,30"), option));
  }
}

TEST_P(Invariant, EverythingAtOnce) {
  Case c = ragged(std::get<0>(GetParam()), kEverything);
  expect_equal_for_all_ranks(c);
  c.modification = "all";
  expect_equal_for_all_ranks(c);
}

TEST_P(Invariant, Shapes) {
  const char* const dtype = std::get<0>(GetParam());
  for (const char* shape :
       {"heads=1/1 dim=16 lengths=150 mask=causal", "heads=7/7 dim=9 lengths=40,33 mask=none",
        "heads=9/3 dim=33 lengths=61 kv_lengths=130 mask=bottom_right",
        "heads=8/4 dim=16 lengths=24,24 padded=30,30 kv_padded=30,30 mask=causal layout=sbhd",
        "heads=2/2 dim=192 dim_v=128 lengths=90 mask=causal"}) {
    expect_equal_for_all_ranks({.problem = fmt::format("dtype={} {}", dtype, shape)});
  }
}

/// Inference on one rank sees what training on several saw.
TEST_P(Invariant, ForwardAlone) {
  Case c = ragged(std::get<0>(GetParam()), std::string(kEverything) + " invariant=true");
  c.provider = std::get<1>(GetParam());
  c.forward = "all_to_all";
  c.backward = kNoStrategy;
  const tool::GroupResults inference = must_run(c, shared_device());
  c.backward = "all_to_all";
  c.ranks = 3;
  tool::GroupResults training = must_run(c, shared_device());
  for (tool::Tensor* gradient :
       {&training.dq, &training.dk, &training.dv, &training.dsink, &training.dbias}) {
    *gradient = {};
  }
  EXPECT_EQ(different_results(training, inference), "") << text(c);
}

INSTANTIATE_TEST_SUITE_P(Types, Invariant,
                         testing::Combine(testing::ValuesIn(kDTypes),
                                          testing::Values("cpu/tiled", "cpu/reference")));

class Repeats : public testing::TestWithParam<StrategyPair> {};

TEST_P(Repeats, AreEqualOnAnyNumberOfThreads) {
  const std::map<int, Device> devices = {
      {1, cpu_device(1)}, {2, cpu_device(2)}, {4, cpu_device(4)}};
  for (const char* more : {"", "deterministic=true"}) {
    for (const char* dtype : kDTypes) {
      for (const char* provider : {"cpu/tiled", "cpu/reference"}) {
        Case c = ragged(dtype, fmt::format("{} {}", kEverything, more));
        c.ranks = 4;
        c.nodes = 2;
        c.forward = GetParam().forward;
        c.backward = GetParam().backward;
        c.partition = "zigzag";
        c.provider = provider;
        const tool::GroupResults first = must_run(c, devices.at(1));
        for (const auto& [threads, device] : devices) {
          const tool::GroupResults results = must_run(c, device, 3);
          EXPECT_EQ(results.unequal_repeats, 0) << threads << " threads, " << text(c);
          EXPECT_EQ(different_results(results, first), "") << threads << " threads, " << text(c);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Repeats, testing::ValuesIn(diagonal_pairs()));

}  // namespace
}  // namespace longspan::testkit
