// Which provider computes a direction.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "longspan/engine.h"
#include "plan/cache.h"

namespace longspan {

struct ProviderChoice {
  const Provider* provider = nullptr;  // null when nobody offers or the required one declines
  std::string reason;
  std::vector<NamedDecline> declines;
};

/// Asks every provider about every one of `problems` (those of different ranks) and takes the best
/// that offers all of them under `routing`. `refuse_16bit_partials`: partial results are merged,
/// and the caller wants them in FP32.
ProviderChoice select_provider(PlanCache& cache, std::span<const Provider* const> providers,
                               std::span<const TileProblem> problems, const Device& device,
                               const Routing& routing, bool refuse_16bit_partials);

}  // namespace longspan
