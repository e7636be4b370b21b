// The oracle: attention row by row in float64, whatever the element type.
#pragma once

#include <memory>

#include "longspan/provider.h"

namespace longspan::cpu {

std::shared_ptr<const Plan> make_reference_forward(const TileProblem& problem,
                                                   std::shared_ptr<Workers> workers);
std::shared_ptr<const Plan> make_reference_backward(const TileProblem& problem,
                                                    std::shared_ptr<Workers> workers);

}  // namespace longspan::cpu

namespace longspan {

/// Inputs are converted to float64 once per tile; one score buffer of a row per thread. O, LSE,
/// delta, slopes, largest logits and gradients may be f32 or f64 views, so that a check of 16-bit
/// inputs keeps full precision.
class CpuReference final : public Provider {
 public:
  constexpr CpuReference() = default;
  std::string_view name() const override { return "cpu/reference"; }
  std::string_view summary() const override { return "row by row in float64, the oracle"; }
  Result<std::string> identity(const Problem& problem, Direction direction,
                               const Device& device) const override;
  Verdict consider(const TileProblem& problem, const Device& device) const override;
  Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                              const Device& device) const override;
};

extern const CpuReference kCpuReference;

}  // namespace longspan
