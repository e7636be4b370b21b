// Runs a schedule: the only place that starts transfers and plans.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "engine/pulling.h"
#include "engine/queues.h"
#include "engine/row_program.h"
#include "longspan/communicator.h"
#include "longspan/provider.h"
#include "longspan/schedule.h"

namespace longspan {

inline constexpr size_t kQuantities = 11;
/// One tensor of the call for each quantity; those that a direction does not use stay empty.
using OperandViews = std::array<TensorView, kQuantities>;

inline TensorView& at(OperandViews& views, Quantity quantity) {
  return views[static_cast<size_t>(quantity)];
}

/// What only some problems have, resolved: absent views have no data.
struct Sides {
  ScoreTerms terms;  // head_begin: set step by step
  TensorView sink;   // absent: a logit of 0
  TensorView dsink, dbias;
  ActualLengths lengths;  // where the schedule's tiles end at them
};

/// Everything that one execution needs.
struct Execution {
  const Schedule& schedule;
  const Plan* plan;  // null when the schedule has no attend steps
  const OperandViews& operands;
  const std::vector<void*>& saved;  // per saved buffer of the schedule, in order of buffers
  Workspace workspace;              // the schedule's bytes, then the plan's
  double scale;
  const Sides& sides;
  const RowProgram& rows;
  std::span<const std::shared_ptr<const Staged>> staged;  // per part of the attend steps, in order
  const std::vector<bool>& awaited;                       // awaited_elsewhere(schedule)
  const Pulling& pulling;                                 // pulling_of(schedule)
  bool cold;                                              // the call's first run
  Stream stream;
  std::chrono::milliseconds deadline;
};

/// One rank's executor; keeps its lists between runs so that a repeated run allocates nothing.
class Executor {
 public:
  Executor(Communicator& communicator, Queues& queues)
      : communicator_(communicator), queues_(queues) {}

  /// Returns when all steps are done, or at the first failure.
  Status run(const Execution& execution);

  int64_t attend_launches() const { return attend_launches_; }
  int64_t fill_steps() const { return fill_steps_; }

 private:
  Status run_step(const Execution& execution, const Step& step, StepId id);
  Status post(const Execution& execution, const Step& step, StepId id);
  /// The queue goes on when the earlier step is done.
  Status wait_for(const Execution& execution, StepId id, int queue);
  Status mark(const Execution& execution, StepId id, int queue);
  Status settle(const Execution& execution, const Step& step, StepId id);
  Status attend(const Execution& execution, const Step& step);
  /// What peers read: the tensors themselves, or where that cannot be their copies.
  Status lend(const Execution& execution, const Step& step, StepId id);
  Status post_loans(const Execution& execution, const Step& step, StepId id);
  /// Keys and values for an attend step that pulls, once all lenders have queued their loans.
  Result<PulledKeys> borrow(const Execution& execution, int queue);
  void bind_buffers(const Execution& execution);
  const TensorView& view(BufferId id) const { return views_[static_cast<size_t>(id)]; }
  TensorView view_or_none(BufferId id) const { return id == kNone ? TensorView() : view(id); }

  Communicator& communicator_;
  Queues& queues_;
  std::vector<TensorView> views_;    // per buffer
  std::vector<Request> requests_;    // per step; id -1 when not in flight
  std::vector<Transfer> transfers_;  // of the step being posted
  std::array<TensorView, 2> lent_;   // K and V
  size_t part_ = 0;                  // parts attended in this run
  int64_t attend_launches_ = 0;
  int64_t fill_steps_ = 0;
};

}  // namespace longspan
