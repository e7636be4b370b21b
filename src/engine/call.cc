#include "engine/call.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "cuda/upload.h"
#include "longspan/plan_record.h"

namespace longspan {

PreparedCall::PreparedCall(CallParts parts)
    : parts_(std::move(parts)),
      saved_layout_(
          longspan::saved_layout(schedule(Direction::kForward), schedule(Direction::kBackward))) {}

Result<PlanRecord> PreparedCall::record() const {
  return make_record({.problem = parts_.problem,
                      .topology = parts_.setting.topology,
                      .device = parts_.device,
                      .options = parts_.options,
                      .explanation = parts_.explanation,
                      .pulls = parts_.setting.pulls,
                      .gathers_whole = parts_.setting.gathers_whole,
                      .forward_hash = prepared(Direction::kForward).first_hash,
                      .backward_hash = prepared(Direction::kBackward).first_hash});
}

void* PreparedCall::guard_scratch(Direction direction, Workspace workspace) const {
  if (guard() == nullptr) return nullptr;
  const size_t end = workspace_bytes(direction);
  return static_cast<std::byte*>(workspace.data) + (end - guard::kScratchBytes);
}

Status add_guard(CallParts& parts, const Options& options, const Device& device,
                 std::shared_ptr<guard::Report> report) {
  std::vector<guard::Predicate> predicates =
      guard::make_predicates(parts.problem, options.promises);
  if (predicates.empty()) return {};
  for (Prepared& prepared : parts.directions) {
    prepared.workspace_bytes += guard::kScratchBytes;
  }
  LONGSPAN_TRY(parts.guard,
               guard::make_guard(std::move(predicates), options.guards, device, std::move(report)));
  return {};
}

Result<Slopes> make_default_slopes(const Problem& problem, const Device& device) {
  if (problem.alibi == Alibi::kNone) return Slopes();
  const std::vector<double> wide = default_alibi_slopes(problem.heads_q);
  const std::vector<float> narrow(wide.begin(), wide.end());
  const DType dtype = accumulator(problem.dtype);
  const void* const data =
      dtype == DType::kF64 ? static_cast<const void*>(wide.data()) : narrow.data();
  const size_t bytes = static_cast<size_t>(problem.heads_q * size_of(dtype));
  Slopes slopes;
  if (device.is_cuda()) {
    LONGSPAN_TRY(slopes.memory, cuda::upload(device, data, bytes));
  } else {
    slopes.memory = std::shared_ptr<void>(std::malloc(bytes), std::free);
    std::memcpy(slopes.memory.get(), data, bytes);
  }
  slopes.view = packed_view(slopes.memory.get(), dtype, 1, problem.heads_q, 1);
  return slopes;
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
