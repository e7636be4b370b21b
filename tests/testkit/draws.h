// Random small cases for differential tests and fuzzing: what is drawn depends on the draws alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "testkit/conformance.h"
#include "testkit/random_problem.h"

namespace longspan::testkit {

/// A problem for several cases, and the strategies that may compute it.
struct Drawn {
  Case base;
  std::vector<std::string> forward, backward;
};

/// A tiny problem with options and callbacks at random; forward alone now and then.
Drawn draw_problem(Random& random, uint64_t seed);

/// Ranks, nodes, strategies, partition and provider for it.
Case draw_run(Random& random, const Drawn& drawn);

}  // namespace longspan::testkit
