// longspan's own attention kernels for Hopper GPUs.
#pragma once

#include "longspan/provider.h"

namespace longspan {

/// Forward of f16 and bf16 on compute capability 9.0 (the kernels are sm_90a code), and backward
/// above 128 columns. Partial results are FP32; O and LSE of a call with several tiles are merged,
/// and gradients added up, inside the kernels.
class Hopper final : public Provider {
 public:
  constexpr Hopper() = default;
  std::string_view name() const override { return "hopper"; }
  std::string_view summary() const override {
    return "own kernels, f16 and bf16 on compute capability 9.0";
  }
  Result<std::string> identity(const Problem& problem, Direction direction,
                               const Device& device) const override;
  Verdict consider(const TileProblem& problem, const Device& device) const override;
  Verdict consider_pulls(const TileProblem& problem, const Device& device) const override;
  Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                              const Device& device) const override;
};

extern const Hopper kHopper;

}  // namespace longspan
