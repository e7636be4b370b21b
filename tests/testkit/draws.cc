#include "testkit/draws.h"

#include <array>

#include "testkit/modifications.h"
#include "testkit/pairs.h"

namespace longspan::testkit {

Drawn draw_problem(Random& random, uint64_t seed) {
  const bool forward_only = random.chance(0.15);
  Problem problem = random_problem(
      random,
      {.sequences = 4, .length = 24, .key_heads = 3, .group = 3, .dim = 12, .pages = forward_only});
  problem.invariant = random.chance(0.08);
  Drawn drawn{.base = {.problem = problem.text(), .seed = seed},
              .forward = forward_strategies(),
              .backward = backward_strategies()};
  if (random.chance(0.12)) drawn.base.modification = random.one_of(modification_names());
  if (problem.invariant) drawn.forward = {"all_to_all"};
  if (problem.invariant) drawn.backward = {"all_to_all", "head_parallel"};
  if (forward_only) drawn.backward = {std::string(kNoStrategy)};
  return drawn;
}

namespace {

int draw_nodes(Random& random, const Case& c) {
  if (c.forward != "hybrid" && c.backward != "hybrid") return 1;
  std::vector<int> divisors;
  for (int nodes = 1; nodes <= c.ranks; ++nodes) {
    if (c.ranks % nodes == 0) divisors.push_back(nodes);
  }
  return random.one_of(divisors);
}

}  // namespace

Case draw_run(Random& random, const Drawn& drawn) {
  constexpr std::array kRanks = {1, 2, 2, 3, 3, 4, 5, 8};
  const std::vector<std::string> partitions = {"contiguous", "zigzag", "striped", "balanced",
                                               "auto"};
  Case c = drawn.base;
  c.ranks = random.one_of(kRanks);
  c.forward = random.one_of(drawn.forward);
  c.backward = random.one_of(drawn.backward);
  c.partition = random.one_of(partitions);
  c.provider = random.chance(0.7) ? "cpu/tiled" : "cpu/reference";
  c.nodes = draw_nodes(random, c);
  return c;
}

}  // namespace longspan::testkit
