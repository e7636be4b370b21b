#include "engine/executor.h"

#include <cstddef>
#include <utility>

#include "engine/host_ops.h"

namespace longspan {
namespace {

std::byte* at_offset(const Workspace& workspace, int64_t offset) {
  return static_cast<std::byte*>(workspace.data) + offset;
}

/// Gradients that steps add to start at 0.
void clear(const TensorView& view, Workers& workers) {
  if (view.data != nullptr) fill_rows(view, {.row = 0, .rows = view.rows()}, false, workers);
}

}  // namespace

void Executor::bind_buffers(const Execution& x) {
  views_.clear();
  size_t saved = 0;
  for (const Buffer& buffer : x.schedule.buffers) {
    switch (buffer.space) {
      case Space::kOperand:
        views_.push_back(x.operands[static_cast<size_t>(buffer.quantity)]);
        break;
      case Space::kSaved:
        views_.push_back(
            packed_view(x.saved[saved++], buffer.dtype, buffer.rows, buffer.heads, buffer.dim));
        break;
      case Space::kWorkspace:
        views_.push_back(packed_view(at_offset(x.workspace, buffer.offset), buffer.dtype,
                                     buffer.rows, buffer.heads, buffer.dim));
        break;
    }
  }
}

Status Executor::run(const Execution& x) {
  bind_buffers(x);
  clear(x.sides.dsink, workers_);
  clear(x.sides.dbias, workers_);
  requests_.assign(x.schedule.steps.size(), Request{});
  const auto count = static_cast<StepId>(x.schedule.steps.size());
  for (StepId id = 0; id < count; ++id) {
    LONGSPAN_CHECK_OK(run_step(x, x.schedule.steps[static_cast<size_t>(id)], id));
  }
  for (StepId id = 0; id < count; ++id) LONGSPAN_CHECK_OK(wait_for(x, id));
  return {};
}

Status Executor::wait_for(const Execution& x, StepId id) {
  Request& request = requests_[static_cast<size_t>(id)];
  if (request.id < 0) return {};
  const Request waiting = std::exchange(request, Request{});
  return communicator_.wait(waiting, x.deadline);
}

Status Executor::post(const Execution& x, const Step& step, StepId id) {
  transfers_.clear();
  for (const Message& message : step.messages) {
    transfers_.push_back({.kind = message.kind,
                          .peer = message.peer,
                          .tag = message.tag,
                          .data = at_offset(x.workspace, message.offset),
                          .bytes = static_cast<size_t>(message.bytes)});
  }
  LONGSPAN_TRY(requests_[static_cast<size_t>(id)], communicator_.start(transfers_));
  return {};
}

Status Executor::attend(const Execution& x, const Step& step) {
  const auto scratch_begin = static_cast<size_t>(x.schedule.workspace_bytes);
  const Workspace scratch{at_offset(x.workspace, x.schedule.workspace_bytes),
                          x.workspace.bytes - scratch_begin};
  ScoreTerms terms = x.sides.terms;
  terms.head_begin = x.schedule.buffers[static_cast<size_t>(step.q)].head_begin;
  for (const Part& part : step.parts) {
    if (part.after != kNone) LONGSPAN_CHECK_OK(wait_for(x, part.after));
    ++attend_launches_;
    if (step.kind == StepKind::kAttend) {
      LONGSPAN_CHECK_OK(x.plan->forward(
          {.q = view(step.q),
           .k = view(part.k),
           .v = view(part.v),
           .o = view(step.o),
           .lse = view(step.lse),
           .tiles = part.tiles,
           .scale = x.scale,
           .terms = terms,
           .max_logit = step.max_logit == kNone ? TensorView() : view(step.max_logit)},
          scratch));
      continue;
    }
    LONGSPAN_CHECK_OK(x.plan->backward({.q = view(step.q),
                                        .k = view(part.k),
                                        .v = view(part.v),
                                        .dout = view(step.dout),
                                        .lse = view(step.lse),
                                        .delta = view(step.delta),
                                        .dq = view(step.dq),
                                        .dk = view(part.dk),
                                        .dv = view(part.dv),
                                        .tiles = part.tiles,
                                        .scale = x.scale,
                                        .terms = terms,
                                        .dbias = x.sides.dbias},
                                       scratch));
  }
  return {};
}

void Executor::sink(const Execution& x, const Step& step) {
  const int64_t head = x.schedule.buffers[static_cast<size_t>(step.lse)].head_begin;
  if (step.kind == StepKind::kSinkGradient) {
    sink_gradient(view(step.lse), view(step.delta), x.sides.sink, x.sides.dsink, head, step.fills,
                  workers_);
    return;
  }
  for (const Fill& rows : step.fills) {
    sink_rows(view(step.o), view(step.lse), x.sides.sink, head, rows, workers_);
  }
}

Status Executor::run_step(const Execution& x, const Step& step, StepId id) {
  for (const StepId earlier : step.after) LONGSPAN_CHECK_OK(wait_for(x, earlier));
  if (step.lane == Lane::kTransfer) return post(x, step, id);
  switch (step.kind) {
    case StepKind::kAttend:
    case StepKind::kAttendBackward: return attend(x, step);
    case StepKind::kDelta:
      for (const Copy& rows : step.copies) {
        delta_rows(view(step.o), view(step.dout), view(step.delta), rows, workers_);
      }
      return {};
    case StepKind::kFill:
      for (const Fill& fill : step.fills) {
        const Buffer& buffer = x.schedule.buffers[static_cast<size_t>(fill.buffer)];
        const bool lowest =
            buffer.quantity == Quantity::kLse || buffer.quantity == Quantity::kMaxLogit;
        fill_rows(view(fill.buffer), fill, lowest, workers_);
      }
      return {};
    case StepKind::kAccumulate:
      for (const Copy& copy : step.copies) add_rows(view(copy.src), view(copy.dst), copy, workers_);
      return {};
    case StepKind::kMaximum:
      for (const Copy& copy : step.copies) max_rows(view(copy.src), view(copy.dst), copy, workers_);
      return {};
    case StepKind::kSink:
    case StepKind::kSinkGradient: sink(x, step); return {};
    case StepKind::kPack:
    case StepKind::kUnpack:
      for (const Copy& copy : step.copies)
        copy_rows(view(copy.src), view(copy.dst), copy, workers_);
      return {};
    default:
      return Error{ErrorCode::kInternal, "a transfer step stands on the compute lane", "executor"};
  }
}

}  // namespace longspan
