#include <fmt/format.h>

#include <algorithm>

#include "schedule/check.h"

namespace longspan::proof {
namespace {

/// Rows of the fills, which must be those of the buffer's tokens, each once and in order.
Status check_rows(const Schedule& schedule, StepId id, BufferId buffer) {
  const std::vector<Fill>& rows = step_of(schedule, id).fills;
  size_t at = 0;
  for (const Run& run : buffer_of(schedule, buffer).runs) {
    if (run.valid == 0) continue;
    const bool same = at < rows.size() && rows[at].buffer == buffer && rows[at].row == run.row &&
                      rows[at].rows == run.valid;
    if (!same) return defect(schedule, id, buffer, fmt::format("leaves out row {}", run.row));
    ++at;
  }
  if (at == rows.size()) return {};
  return defect(schedule, id, buffer, "takes rows that hold no token");
}

Status check_buffers_of(const Schedule& schedule, StepId id) {
  const Step& step = step_of(schedule, id);
  const bool forward = step.kind == StepKind::kSink;
  const BufferId other = forward ? step.o : step.delta;
  if (step.lse == kNone || other == kNone) return defect(schedule, id, kNone, "needs two buffers");
  const Buffer& lse = buffer_of(schedule, step.lse);
  const Buffer& second = buffer_of(schedule, other);
  const bool kinds = lse.quantity == Quantity::kLse &&
                     second.quantity == (forward ? Quantity::kO : Quantity::kDelta);
  if (!kinds) return defect(schedule, id, other, "takes buffers of other quantities");
  if (lse.rows != second.rows || lse.heads != second.heads || lse.head_begin != second.head_begin) {
    return defect(schedule, id, other, "differs from lse in rows or heads");
  }
  return check_rows(schedule, id, step.lse);
}

/// Whether the step starts an O of tokens, to be carried from tile to tile.
bool starts_output(const Schedule& schedule, const Step& step) {
  if (step.kind != StepKind::kFill) return false;
  return std::any_of(step.fills.begin(), step.fills.end(), [&](const Fill& fill) {
    const Buffer& buffer = buffer_of(schedule, fill.buffer);
    return buffer.quantity == Quantity::kO && buffer.space != Space::kOperand &&
           holds_tokens(buffer, fill.row, fill.row + fill.rows);
  });
}

bool is_sink(StepKind kind) { return kind == StepKind::kSink || kind == StepKind::kSinkGradient; }

}  // namespace

Status check_sinks(const Setting& setting, const Schedule& schedule) {
  const bool forward = schedule.direction == Direction::kForward;
  const Sink sink = setting.problem.sink;
  const bool wanted = forward ? sink != Sink::kNone : sink == Sink::kLearnable;
  StepId found = kNone;
  bool needed = false;
  const auto count = static_cast<StepId>(schedule.steps.size());
  for (StepId id = 0; id < count; ++id) {
    const StepKind kind = step_of(schedule, id).kind;
    needed |= starts_output(schedule, step_of(schedule, id)) || is_attend(kind);
    if (is_attend(kind) && forward && found != kNone) {
      return defect(schedule, id, kNone, "tiles come after the sink entered");
    }
    if (!is_sink(kind)) continue;
    if (found != kNone || !wanted) return defect(schedule, id, kNone, "one sink too many");
    LONGSPAN_CHECK_OK(check_buffers_of(schedule, id));
    found = id;
  }
  if (!wanted || !needed || found != kNone) return {};
  return defect(schedule, kNone, kNone, "the problem has a sink and no step brings it in");
}

}  // namespace longspan::proof
