// Which provider computes a direction.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "longspan/engine.h"
#include "longspan/routing_table.h"
#include "plan/cache.h"

namespace longspan {

struct ProviderChoice {
  const Provider* provider = nullptr;  // null when nobody offers or the required one declines
  std::string reason;
  std::vector<NamedDecline> declines;
};

/// What a provider is chosen for.
struct ProviderQuestion {
  std::span<const TileProblem> problems;  // those of different ranks, which one must offer all of
  const Device& device;
  const Routing& routing;
  bool refuse_16bit_partials = false;    // partial results are merged, and wanted in FP32
  const RoutingRow* measured = nullptr;  // what the routing table says of them; null: nothing
};

/// Asks all of `providers`, best first. Of those that offer and are measured the fastest is the
/// automatic choice; where none is, the first that offers.
ProviderChoice select_provider(PlanCache& cache, std::span<const Provider* const> providers,
                               const ProviderQuestion& question);

}  // namespace longspan
