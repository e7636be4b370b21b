#include "testkit/cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "testkit/options.h"
#include "testkit/pairs.h"
#include "testkit/random_problem.h"

namespace longspan::testkit {
namespace {

const std::vector<std::string> kPartitions = {"contiguous", "zigzag", "striped", "balanced"};
const std::vector<std::string> kDTypes = {"f64", "f32", "f16", "bf16"};
const std::vector<int> kRanks = {1, 2, 3, 4, 5, 8};

/// Three of four cases go to the provider that users get.
std::string draw_provider(Random& random) {
  return random.chance(0.75) ? "cpu/tiled" : "cpu/reference";
}

bool hybrid(const Case& c) { return c.forward == "hybrid" || c.backward == "hybrid"; }

/// Two nodes where hybrid is asked for; nodes of unequal size must be declined.
Case with_nodes(Case c) {
  c.nodes = hybrid(c) && c.ranks > 1 ? 2 : 1;
  if (c.ranks % c.nodes != 0) c.declined = DeclineCode::kTopology;
  return c;
}

/// What options stand beside: both alignments and no mask at all.
constexpr const char* kMasks[] = {
    "heads=4/2 dim=16 lengths=37,20 mask=causal",
    "heads=4/2 dim=16 lengths=21,30 kv_lengths=40,12 mask=bottom_right",
    "heads=2/1 dim=16 lengths=30,11 kv_lengths=19,33 mask=none align=bottom_right",
};

/// And these shapes: latent attention's dims, odd dims, fewer key heads than ranks, head counts
/// that ranks do not divide, padded batches, empty sides, fewer tokens than ranks.
constexpr const char* kShapes[] = {
    "heads=2/2 dim=192 dim_v=128 lengths=21,14 mask=causal",
    "heads=3/1 dim=576 dim_v=512 lengths=17 mask=causal",
    "heads=2/2 dim=11 dim_v=5 lengths=25,13 mask=causal",
    "heads=6/1 dim=8 lengths=24 mask=causal",
    "heads=7/7 dim=12 lengths=19,5 mask=none",
    "heads=4/2 dim=16 lengths=20,0,13 padded=24,24,24 kv_padded=24,24,24 mask=causal layout=sbhd",
    "heads=4/2 dim=8 lengths=0,9,14,0 kv_lengths=12,0,11,0 mask=none",
    "heads=2/2 dim=16 lengths=3 mask=causal",
};

/// Three hundred sequences of 0 to 4 tokens.
std::string many_tiny_sequences() {
  Random random(5);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 300; ++i) lengths.push_back(random.between(0, 4));
  return fmt::format("heads=2/1 dim=8 lengths={} mask=causal", fmt::join(lengths, ","));
}

}  // namespace

const std::vector<std::string>& features() {
  static const std::vector<std::string> texts = {
      // Heads: equal, grouped, one key head, prime, fewer key heads than ranks, one.
      "heads=4/4 dim=16 lengths=61 mask=causal",
      "heads=8/2 dim=16 lengths=53 mask=causal",
      "heads=6/1 dim=8 lengths=47 mask=none",
      "heads=7/7 dim=12 lengths=37 mask=causal",
      "heads=13/13 dim=4 lengths=29 mask=none",
      "heads=15/3 dim=8 lengths=40 mask=causal",
      "heads=10/2 dim=24 lengths=40 mask=causal",
      "heads=1/1 dim=32 lengths=70 mask=causal",
      // Dims: smallest, odd, unequal, large.
      "heads=3/3 dim=1 lengths=31 mask=causal",
      "heads=2/1 dim=31 dim_v=17 lengths=45 mask=causal",
      "heads=2/2 dim=1 dim_v=40 lengths=26 mask=none",
      "heads=2/2 dim=192 dim_v=128 lengths=33,18 mask=causal",
      "heads=3/1 dim=576 dim_v=512 lengths=29 mask=causal",
      // Layouts and padding.
      "heads=4/2 dim=16 lengths=24,24,24 mask=causal layout=bshd",
      "heads=4/2 dim=16 lengths=17,17 mask=causal layout=sbhd",
      "heads=4/2 dim=16 lengths=20,0,13 padded=24,24,24 kv_padded=24,24,24 mask=causal layout=bshd",
      "heads=2/2 dim=8 lengths=9,11 kv_lengths=16,3 padded=12,12 kv_padded=17,17 mask=none "
      "layout=sbhd",
      "heads=2/1 dim=16 lengths=15,0,22 padded=20,3,22 tokens=51 kv_tokens=60 mask=causal",
      "heads=2/2 dim=8 lengths=30 padded=64 kv_padded=33 tokens=200 kv_tokens=35 mask=causal",
      // Lengths: empty sides, fewer tokens than ranks, single tokens, many tiny sequences.
      "heads=4/2 dim=8 lengths=0,9,14,0 kv_lengths=12,0,11,0 mask=none",
      "heads=4/2 dim=8 lengths=0,9,14,0 kv_lengths=12,0,11,0 mask=bottom_right",
      "heads=2/2 dim=8 lengths=0 mask=causal",
      "heads=2/2 dim=16 lengths=3 mask=causal",
      "heads=2/2 dim=16 lengths=1 mask=none",
      "heads=2/2 dim=16 lengths=1,1,2 kv_lengths=5,1,1 mask=causal",
      many_tiny_sequences(),
      // Queries and keys of different length.
      "heads=4/2 dim=16 lengths=12,30 kv_lengths=30,12 mask=bottom_right",
      "heads=2/1 dim=16 lengths=40 kv_lengths=9 mask=bottom_right",
      "heads=2/1 dim=16 lengths=9,21 kv_lengths=40,64 mask=causal",
      "heads=3/3 dim=16 lengths=50,7 kv_lengths=20,7 mask=causal",
      "heads=4/1 dim=16 lengths=19,6 kv_lengths=44,80 mask=none",
      // More than one block of any provider.
      "heads=4/2 dim=64 lengths=517 mask=causal",
      "heads=2/2 dim=128 lengths=260,129,64 mask=causal",
      "heads=2/1 dim=80 lengths=300,5 kv_lengths=411,200 mask=bottom_right",
      "heads=6/3 dim=64 lengths=383 mask=none scale=0.3",
  };
  return texts;
}

std::vector<Case> strategy_cases() {
  std::vector<Case> cases;
  Random random(1);
  for (const StrategyPair& pair : all_pairs()) {
    for (const int ranks : kRanks) {
      const std::string dtype = random.one_of(kDTypes);
      cases.push_back(with_nodes({.problem = "dtype=" + dtype + " " + random.one_of(features()),
                                  .ranks = ranks,
                                  .forward = pair.forward,
                                  .backward = pair.backward,
                                  .partition = random.one_of(kPartitions),
                                  .provider = draw_provider(random),
                                  .seed = cases.size()}));
    }
  }
  return cases;
}

std::vector<Case> feature_cases() {
  std::vector<Case> cases;
  Random random(2);
  for (const std::string& feature : features()) {
    for (const std::string& dtype : kDTypes) {
      cases.push_back(with_nodes({.problem = fmt::format("dtype={} {}", dtype, feature),
                                  .ranks = random.one_of(kRanks),
                                  .forward = random.one_of(forward_strategies()),
                                  .backward = random.one_of(backward_strategies()),
                                  .partition = random.one_of(kPartitions),
                                  .provider = draw_provider(random),
                                  .seed = cases.size()}));
    }
  }
  return cases;
}

std::vector<Case> random_cases() {
  std::vector<Case> cases;
  Random random(3);
  const ProblemLimits limits{.sequences = 6, .length = 70, .dim = 40};
  for (uint64_t seed = 0; seed < 250; ++seed) {
    cases.push_back(with_nodes({.problem = random_problem(random, limits).text(),
                                .ranks = static_cast<int>(random.between(1, 8)),
                                .forward = random.one_of(forward_strategies()),
                                .backward = random.one_of(backward_strategies()),
                                .partition = random.one_of(kPartitions),
                                .provider = draw_provider(random),
                                .seed = seed}));
  }
  return cases;
}

std::vector<Case> option_cases() {
  std::vector<Case> cases;
  Random random(4);
  const auto add = [&](const std::string& shape, const std::string& dtype, const Option& option) {
    cases.push_back(with_option(with_nodes({.problem = fmt::format("dtype={} {}", dtype, shape),
                                            .ranks = random.one_of(kRanks),
                                            .forward = random.one_of(forward_strategies()),
                                            .backward = random.one_of(backward_strategies()),
                                            .partition = random.one_of(kPartitions),
                                            .provider = draw_provider(random),
                                            .seed = cases.size()}),
                                option));
  };
  for (const Option& option : options()) {
    for (const char* shape : kMasks) {
      for (const std::string& dtype : kDTypes) add(shape, dtype, option);
    }
    for (const char* shape : kShapes) add(shape, random.one_of(kDTypes), option);
    add(many_tiny_sequences(), random.one_of(kDTypes), option);
  }
  return cases;
}

std::vector<Case> declined_cases() {
  const Case plain{
      .problem = "dtype=f32 heads=2/2 dim=8 lengths=20 mask=causal", .ranks = 4, .nodes = 2};
  std::vector<Case> cases;
  const auto add = [&](Case c, DeclineCode code) {
    c.declined = code;
    cases.push_back(std::move(c));
  };
  const auto on = [&](const std::string& forward, const std::string& backward) {
    Case c = plain;
    c.forward = forward;
    c.backward = backward;
    return c;
  };
  add(on("head_parallel", "ring"), DeclineCode::kDirection);
  for (const auto& [ranks, nodes] : {std::pair{3, 2}, std::pair{5, 3}}) {
    for (Case c : {on("hybrid", "ring"), on("ring", "hybrid")}) {
      c.ranks = ranks;
      c.nodes = nodes;
      add(c, DeclineCode::kTopology);
    }
  }
  for (const char* provider : {"cpu/tiled", "cpu/reference"}) {
    Case c = plain;
    c.provider = provider;
    for (const char* recipe : {"delayed", "current", "mxfp8"}) {
      add(with_option(c, {"fp8", recipe}), DeclineCode::kFp8);
    }
    add(with_option(c, {"page", "16"}), DeclineCode::kPage);
  }
  for (const char* strategy : {"ring", "all_gather", "hybrid"}) {
    const Option invariant{"invariant", "true"};
    add(with_option(on(strategy, "all_to_all"), invariant), DeclineCode::kInvariant);
    add(with_option(on("all_to_all", strategy), invariant), DeclineCode::kInvariant);
  }
  return cases;
}

}  // namespace longspan::testkit
