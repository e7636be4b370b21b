#include "providers/cpu/tiled.h"

#include <fmt/format.h>

#include "providers/cpu/rules.h"

namespace longspan {

constinit const CpuTiled kCpuTiled;

Verdict CpuTiled::consider(const TileProblem& problem, const Device& device) const {
  if (auto decline = cpu::refusal(problem, device)) return *decline;
  return Offer{.detail = fmt::format("{} arithmetic", longspan::name(accumulator(problem.dtype)))};
}

Result<std::shared_ptr<const Plan>> CpuTiled::prepare(const TileProblem& problem,
                                                      const Device& device) const {
  LONGSPAN_CHECK_OK(preparable(cpu::refusal(problem, device)));
  if (problem.direction == Direction::kForward) {
    return cpu::make_tiled_forward(problem, device.workers);
  }
  return cpu::make_tiled_backward(problem, device.workers);
}

}  // namespace longspan
