// The choice of partition, strategies and providers behind explain() and Engine::prepare().
#pragma once

#include <memory>

#include "longspan/engine.h"
#include "longspan/plan_record.h"
#include "plan/cache.h"

namespace longspan {

/// Pure but for the cache: equal arguments give equal choices on every rank. `lends`:
/// Communicator::lends().
Result<Choice> choose(const Problem& problem, const Topology& topology, const Device& device,
                      const Options& options, PlanCache& cache, bool lends = false);

/// The one that the options name, or the library's own; never null.
std::shared_ptr<const RoutingTable> routing_table(const Options& options);

}  // namespace longspan
