#include "engine/executor.h"

#include <cstddef>
#include <utility>

namespace longspan {
namespace {

std::byte* at_offset(const Workspace& workspace, int64_t offset) {
  return static_cast<std::byte*>(workspace.data) + offset;
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
  part_ = 0;
  LONGSPAN_CHECK_OK(x.rows.clear(x.sides.dsink, x.stream));
  LONGSPAN_CHECK_OK(x.rows.clear(x.sides.dbias, x.stream));
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
  if (communicator_.on_device()) return communicator_.wait_on(waiting, x.stream, x.deadline);
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
  Request& request = requests_[static_cast<size_t>(id)];
  if (communicator_.on_device()) {
    LONGSPAN_TRY(request, communicator_.start_on(transfers_, x.stream));
  } else {
    LONGSPAN_TRY(request, communicator_.start(transfers_));
  }
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
    const Staged* const staged = x.staged[part_++].get();
    if (step.kind == StepKind::kAttend) {
      LONGSPAN_CHECK_OK(x.plan->forward({.q = view(step.q),
                                         .k = view(part.k),
                                         .v = view(part.v),
                                         .o = view(step.o),
                                         .lse = view(step.lse),
                                         .tiles = part.tiles,
                                         .scale = x.scale,
                                         .terms = terms,
                                         .max_logit = view_or_none(step.max_logit),
                                         .stream = x.stream,
                                         .staged = staged,
                                         .lengths = x.sides.lengths},
                                        scratch));
      continue;
    }
    LONGSPAN_CHECK_OK(x.plan->backward({.q = view(step.q),
                                        .k = view(part.k),
                                        .v = view(part.v),
                                        .dout = view(step.dout),
                                        .lse = view(step.lse),
                                        .delta = view_or_none(step.delta),
                                        .o = view_or_none(step.o),
                                        .dq = view(step.dq),
                                        .dk = view(part.dk),
                                        .dv = view(part.dv),
                                        .tiles = part.tiles,
                                        .scale = x.scale,
                                        .terms = terms,
                                        .dbias = x.sides.dbias,
                                        .stream = x.stream,
                                        .staged = staged,
                                        .lengths = x.sides.lengths},
                                       scratch));
  }
  return {};
}

Status Executor::run_step(const Execution& x, const Step& step, StepId id) {
  for (const StepId earlier : step.after) LONGSPAN_CHECK_OK(wait_for(x, earlier));
  if (step.lane == Lane::kTransfer) return post(x, step, id);
  if (step.kind == StepKind::kAttend || step.kind == StepKind::kAttendBackward) {
    return attend(x, step);
  }
  return x.rows.run(x.schedule, id, views_, x.sides, x.stream);
}

}  // namespace longspan
