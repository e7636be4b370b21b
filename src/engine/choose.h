// The choice of partition, strategies and providers behind explain() and Engine::prepare().
#pragma once

#include "longspan/engine.h"
#include "longspan/plan_record.h"
#include "plan/cache.h"

namespace longspan {

/// Pure but for the cache: equal arguments give equal choices on every rank. `lends`:
/// Communicator::lends().
Result<Choice> choose(const Problem& problem, const Topology& topology, const Device& device,
                      const Options& options, PlanCache& cache, bool lends = false);

}  // namespace longspan
