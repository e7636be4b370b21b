// cuDNN's attention, through graphs.
#pragma once

#include "longspan/provider.h"

namespace longspan {

/// f16 and bf16 on compute capability 9.0. Partial O and gradients leave cuDNN in 16 bits.
class Cudnn final : public Provider {
 public:
  constexpr Cudnn() = default;
  std::string_view name() const override { return "cudnn"; }
  std::string_view summary() const override {
    return "cuDNN 9.19 or newer, f16 and bf16 on compute capability 9.0";
  }
  Result<std::string> identity(const Problem& problem, Direction direction,
                               const Device& device) const override;
  Verdict consider(const TileProblem& problem, const Device& device) const override;
  Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                              const Device& device) const override;
};

extern const Cudnn kCudnn;

}  // namespace longspan
