#include "providers/cpu/reference.h"

#include "providers/cpu/rules.h"

namespace longspan {

constinit const CpuReference kCpuReference;

Verdict CpuReference::consider(const TileProblem& problem, const Device& device) const {
  if (auto decline = cpu::refusal(problem, device)) return *decline;
  return Offer{.detail = "f64 arithmetic, row by row"};
}

Result<std::shared_ptr<const Plan>> CpuReference::prepare(const TileProblem& problem,
                                                          const Device& device) const {
  LONGSPAN_CHECK_OK(preparable(cpu::refusal(problem, device)));
  if (problem.direction == Direction::kForward) {
    return cpu::make_reference_forward(problem, device.workers);
  }
  return cpu::make_reference_backward(problem, device.workers);
}

}  // namespace longspan
