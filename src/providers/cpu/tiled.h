// Attention tile by tile in blocks that fit a core's cache, on all cores.
#pragma once

#include <memory>

#include "longspan/provider.h"

namespace longspan::cpu {

std::shared_ptr<const Plan> make_tiled_forward(const TileProblem& problem,
                                               std::shared_ptr<Workers> workers);
std::shared_ptr<const Plan> make_tiled_backward(const TileProblem& problem,
                                                std::shared_ptr<Workers> workers);

}  // namespace longspan::cpu

namespace longspan {

/// Online softmax over blocks; f32 arithmetic for f32, f16 and bf16, f64 for f64. Scratch memory
/// per thread depends on the dims alone: at most 3 MiB. Results do not depend on the number of
/// threads.
class CpuTiled final : public Provider {
 public:
  constexpr CpuTiled() = default;
  std::string_view name() const override { return "cpu/tiled"; }
  std::string_view summary() const override {
    return "blocked online softmax on all cores, f32 or f64 arithmetic";
  }
  Result<std::string> identity(const Problem& problem, Direction direction,
                               const Device& device) const override;
  Verdict consider(const TileProblem& problem, const Device& device) const override;
  Result<std::shared_ptr<const Plan>> prepare(const TileProblem& problem,
                                              const Device& device) const override;
};

extern const CpuTiled kCpuTiled;

}  // namespace longspan
