// Kernels that were prepared elsewhere and lie in a store.
#pragma once

#include "longspan/provider.h"

namespace longspan {

/// FlashAttention-4 and FROST, compiled ahead of time, on compute capability 9.0. Partial O and
/// gradients leave them in 16 bits.
class PreparedKernels final : public Provider {
 public:
  constexpr PreparedKernels() = default;
  std::string_view name() const override { return "prepared"; }
  std::string_view summary() const override {
    return "kernels of a store that longspan prepare made, f16 and bf16 on compute capability 9.0";
  }
  Result<std::string> identity(const Problem& problem, Direction direction,
                               const Device& device) const override;
  Verdict consider(const TileProblem& problem, const Device& device) const override;
  Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                              const Device& device) const override;
};

extern const PreparedKernels kPrepared;

}  // namespace longspan
