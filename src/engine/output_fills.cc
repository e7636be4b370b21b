#include "engine/output_fills.h"

#include <fmt/format.h>

#include <array>
#include <span>

namespace longspan {
namespace {

constexpr size_t kMostFills = 3;

bool is_output(const Buffer& buffer) {
  if (buffer.space != Space::kOperand) return false;
  switch (buffer.quantity) {
    case Quantity::kO:
    case Quantity::kLse:
    case Quantity::kDq:
    case Quantity::kDk:
    case Quantity::kDv: return true;
    default: return false;
  }
}

/// Backward reads O and LSE.
bool is_written(Direction direction, const Buffer& buffer) {
  const bool of_forward = buffer.quantity == Quantity::kO || buffer.quantity == Quantity::kLse;
  return is_output(buffer) && of_forward == (direction == Direction::kForward);
}

}  // namespace

Result<std::shared_ptr<const OutputFills>> OutputFills::make(const Schedule& schedule,
                                                             const Device& device) {
  const auto fills = std::make_shared<OutputFills>();
  fills->schedule_.direction = schedule.direction;
  for (const Buffer& buffer : schedule.buffers) {
    if (!is_written(schedule.direction, buffer) || buffer.rows == 0) continue;
    Step step{.kind = StepKind::kFill};
    step.fills = {{static_cast<BufferId>(fills->schedule_.buffers.size()), 0, buffer.rows}};
    fills->schedule_.buffers.push_back(buffer);
    fills->schedule_.steps.push_back(std::move(step));
  }
  LONGSPAN_TRY(fills->rows_, make_row_program(fills->schedule_, device));
  return std::shared_ptr<const OutputFills>(fills);
}

Status OutputFills::run(const OperandViews& operands, const Sides& sides, Stream stream) const {
  std::array<TensorView, kMostFills> views;
  for (size_t i = 0; i < schedule_.buffers.size(); ++i) {
    views[i] = operands[static_cast<size_t>(schedule_.buffers[i].quantity)];
  }
  const std::span<const TensorView> used(views.data(), schedule_.buffers.size());
  for (size_t id = 0; id < schedule_.steps.size(); ++id) {
    LONGSPAN_CHECK_OK(rows_->run(schedule_, static_cast<StepId>(id), used, sides, stream));
  }
  return {};
}

std::string_view name(OutputFill fill) { return fill == OutputFill::kElide ? "elide" : "always"; }

Result<OutputFill> parse_output_fill(std::string_view text) {
  for (const OutputFill fill : {OutputFill::kElide, OutputFill::kAlways}) {
    if (text == name(fill)) return fill;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("output_fill \"{}\": allowed are elide and always", text), "engine"};
}

}  // namespace longspan
