#include "engine/call.h"

#include <utility>

namespace longspan {

PreparedCall::PreparedCall(Setting setting, Explanation explanation,
                           std::array<Prepared, 2> directions, int rank)
    : setting_(std::move(setting)),
      explanation_(std::move(explanation)),
      directions_(std::move(directions)),
      rank_(rank),
      saved_layout_(longspan::saved_layout(directions_[0].schedule, directions_[1].schedule)) {
  const Problem& problem = setting_.problem;
  if (problem.alibi == Alibi::kNone) return;
  slopes_ = default_alibi_slopes(problem.heads_q);
  slopes_f32_.assign(slopes_.begin(), slopes_.end());
  const DType dtype = accumulator(problem.dtype);
  void* const data = dtype == DType::kF64 ? static_cast<void*>(slopes_.data()) : slopes_f32_.data();
  default_slopes_ = packed_view(data, dtype, 1, problem.heads_q, 1);
}

std::vector<BufferSpec> saved_layout(const Schedule& forward, const Schedule& backward) {
  std::vector<BufferSpec> specs;
  for (const Quantity quantity :
       {Quantity::kQ, Quantity::kK, Quantity::kV, Quantity::kO, Quantity::kLse}) {
    for (const Buffer& b : backward.buffers) {
      if (b.space != Space::kOperand || b.quantity != quantity) continue;
      specs.push_back({b.name, b.dtype, {b.rows, b.heads, b.dim}, std::string(name(quantity))});
    }
  }
  for (const Buffer& b : forward.buffers) {
    if (b.space == Space::kSaved) specs.push_back({b.name, b.dtype, {b.rows, b.heads, b.dim}, ""});
  }
  return specs;
}

}  // namespace longspan
