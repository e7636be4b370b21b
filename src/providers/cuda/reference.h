// The oracle for whole tensors on a GPU: attention row by row in float64, whatever the element
// type.
#pragma once

#include "longspan/provider.h"

namespace longspan {

/// A block of threads computes a row of a head; sums have a fixed order and no atomics. O, LSE,
/// delta, slopes, largest logits and gradients may be f32 or f64 views, so that a check of 16-bit
/// inputs keeps full precision. Calls need what stage() made of their tiles, and no workspace.
class CudaReference final : public Provider {
 public:
  constexpr CudaReference() = default;
  std::string_view name() const override { return "cuda/reference"; }
  std::string_view summary() const override { return "row by row in float64 on a CUDA device"; }
  Result<std::string> identity(const Problem& problem, Direction direction,
                               const Device& device) const override;
  Verdict consider(const TileProblem& problem, const Device& device) const override;
  Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                              const Device& device) const override;
};

extern const CudaReference kCudaReference;

}  // namespace longspan
