#include "engine/executor.h"

#include <cstddef>
#include <utility>

namespace longspan {
namespace {

std::byte* at_offset(const Workspace& workspace, int64_t offset) {
  return static_cast<std::byte*>(workspace.data) + offset;
}

class ShownStep {
 public:
  ShownStep(Queues& queues, std::string_view name) : queues_(queues) { queues_.push_range(name); }
  ~ShownStep() { queues_.pop_range(); }
  ShownStep(const ShownStep&) = delete;
  ShownStep& operator=(const ShownStep&) = delete;

 private:
  Queues& queues_;
};

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
      case Space::kPeer: views_.emplace_back(); break;
    }
  }
}

Status Executor::run(const Execution& x) {
  bind_buffers(x);
  part_ = 0;
  lent_ = {};
  LONGSPAN_CHECK_OK(x.rows.clear(x.sides.dsink, x.stream));
  LONGSPAN_CHECK_OK(x.rows.clear(x.sides.dbias, x.stream));
  requests_.assign(x.schedule.steps.size(), Request{});
  LONGSPAN_CHECK_OK(queues_.begin(x.stream, !x.awaited.empty()));
  const auto count = static_cast<StepId>(x.schedule.steps.size());
  for (StepId id = 0; id < count; ++id) {
    const Step& step = x.schedule.steps[static_cast<size_t>(id)];
    const ShownStep shown(queues_, name(step.kind));
    LONGSPAN_CHECK_OK(run_step(x, step, id));
    if (step.lane == Lane::kCompute) LONGSPAN_CHECK_OK(mark(x, id, step.queue));
    if (x.cold) LONGSPAN_CHECK_OK(settle(x, step, id));
  }
  for (StepId id = 0; id < count; ++id) {
    if (requests_[static_cast<size_t>(id)].id >= 0) LONGSPAN_CHECK_OK(wait_for(x, id, 0));
  }
  return queues_.end();
}

Status Executor::mark(const Execution& x, StepId id, int queue) {
  const bool awaited = !x.awaited.empty() && x.awaited[static_cast<size_t>(id)];
  return awaited ? queues_.mark(id, queue) : Status();
}

// NOTE: a kernel that is loaded waits for its device, and the loader's lock is one for all devices
// of a process. A rank that loads beside a kernel of its own that waits for a peer would keep that
// peer, where it is a thread of the same process, from queueing what is waited for.
Status Executor::settle(const Execution& x, const Step& step, StepId id) {
  if (!communicator_.on_device() || !communicator_.has_own_device()) return {};
  const bool posted = requests_[static_cast<size_t>(id)].id >= 0;
  const bool pulled = x.pulling.step != kNone && step.kind == StepKind::kAttend;
  if (step.kind == StepKind::kPull || (!posted && !pulled)) return {};
  if (posted) LONGSPAN_CHECK_OK(wait_for(x, id, step.queue));
  return queues_.synchronize(step.queue);
}

Status Executor::wait_for(const Execution& x, StepId id, int queue) {
  const Step& earlier = x.schedule.steps[static_cast<size_t>(id)];
  Request& request = requests_[static_cast<size_t>(id)];
  if (request.id < 0) {
    const bool elsewhere = !x.awaited.empty() && x.awaited[static_cast<size_t>(id)];
    const bool in_order = earlier.lane == Lane::kCompute && earlier.queue == queue;
    return elsewhere && !in_order ? queues_.hold(queue, id) : Status();
  }
  const Request waiting = std::exchange(request, Request{});
  if (!communicator_.on_device()) return communicator_.wait(waiting, x.deadline);
  LONGSPAN_CHECK_OK(communicator_.wait_on(waiting, queues_.stream(queue), x.deadline));
  return mark(x, id, queue);
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
    LONGSPAN_TRY(request, communicator_.start_on(transfers_, queues_.stream(step.queue)));
  } else {
    LONGSPAN_TRY(request, communicator_.start(transfers_));
  }
  return {};
}

Status Executor::attend(const Execution& x, const Step& step) {
  // Each queue has scratch of its own behind the schedule's bytes.
  const int64_t scratch_bytes = x.schedule.scratch_bytes;
  const Workspace scratch{
      at_offset(x.workspace, x.schedule.workspace_bytes + step.queue * scratch_bytes),
      static_cast<size_t>(scratch_bytes)};
  const Stream stream = queues_.stream(step.queue);
  ScoreTerms terms = x.sides.terms;
  terms.head_begin = x.schedule.buffers[static_cast<size_t>(step.q)].head_begin;
  for (const Part& part : step.parts) {
    const bool pulls = part.after != kNone && part.after == x.pulling.step;
    PulledKeys keys;
    if (pulls) {
      LONGSPAN_TRY(keys, borrow(x, step.queue));
    } else if (part.after != kNone) {
      LONGSPAN_CHECK_OK(wait_for(x, part.after, step.queue));
    }
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
                                         .stream = stream,
                                         .staged = staged,
                                         .lengths = x.sides.lengths,
                                         .pulled = pulls ? &keys : nullptr},
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
                                        .stream = stream,
                                        .staged = staged,
                                        .lengths = x.sides.lengths},
                                       scratch));
  }
  return {};
}

Status Executor::run_step(const Execution& x, const Step& step, StepId id) {
  for (const StepId earlier : step.after) LONGSPAN_CHECK_OK(wait_for(x, earlier, step.queue));
  if (step.kind == StepKind::kLend) return lend(x, step, id);
  if (step.kind == StepKind::kPull) return post_loans(x, step, id);
  if (step.lane == Lane::kTransfer) return post(x, step, id);
  if (step.kind == StepKind::kAttend || step.kind == StepKind::kAttendBackward) {
    return attend(x, step);
  }
  if (step.kind == StepKind::kFill) ++fill_steps_;
  return x.rows.run(x.schedule, id, views_, x.sides, queues_.stream(step.queue));
}

}  // namespace longspan
