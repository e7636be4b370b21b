// Steps of schedules whose attend step brings keys and values itself.
#include "engine/executor.h"

namespace longspan {
namespace {

/// Whether rows of [heads, dim] follow each other without gaps, aligned for bulk copies.
bool lies_packed(const TensorView& view) {
  constexpr uintptr_t kAlignment = 16;
  const bool rows = view.batch <= 1 || view.stride_batch == view.seq * view.stride_seq;
  const bool heads = view.heads <= 1 || view.stride_head == view.dim;
  return rows && heads && view.stride_seq == view.heads * view.dim && view.pages == nullptr &&
         reinterpret_cast<uintptr_t>(view.data) % kAlignment == 0;
}

size_t bytes_of(const TensorView& view) {
  return static_cast<size_t>(view.rows() * view.heads * view.dim * size_of(view.dtype));
}

}  // namespace

Status Executor::lend(const Execution& x, const Step& step, StepId id) {
  bool as_they_are = true;
  for (const Copy& copy : step.copies) {
    const TensorView& own = view(copy.src);
    const bool keys = x.schedule.buffers[static_cast<size_t>(copy.src)].quantity == Quantity::kK;
    lent_[keys ? 0 : 1] = own;
    as_they_are = as_they_are && lies_packed(own) && communicator_.lendable(own.data).ok();
  }
  if (as_they_are) return {};
  for (const Copy& copy : step.copies) {
    const bool keys = x.schedule.buffers[static_cast<size_t>(copy.src)].quantity == Quantity::kK;
    lent_[keys ? 0 : 1] = view(copy.dst);
  }
  return x.rows.run(x.schedule, id, views_, x.sides, queues_.stream(step.queue));
}

Status Executor::post_loans(const Execution& x, const Step& step, StepId id) {
  transfers_.clear();
  for (const int reader : step.readers) {
    for (const TensorView& own : lent_) {
      transfers_.push_back({.kind = TransferKind::kLend,
                            .peer = reader,
                            .tag = kLoanTag,
                            .data = own.data,
                            .bytes = bytes_of(own)});
    }
  }
  for (const Pulling::Lender& lender : x.pulling.lenders) {
    for (const size_t bytes : lender.bytes) {
      transfers_.push_back({.kind = TransferKind::kBorrow,
                            .peer = lender.rank,
                            .tag = kLoanTag,
                            .data = nullptr,
                            .bytes = bytes});
    }
  }
  if (transfers_.empty()) return {};
  Request& request = requests_[static_cast<size_t>(id)];
  LONGSPAN_TRY(request, communicator_.start_on(transfers_, queues_.stream(step.queue)));
  return {};
}

Result<PulledKeys> Executor::borrow(const Execution& x, int queue) {
  PulledKeys keys{.k = lent_[0], .v = lent_[1], .loans = {}};
  const Request request = requests_[static_cast<size_t>(x.pulling.step)];
  if (request.id < 0) return keys;  // nothing is borrowed or lent
  LONGSPAN_TRY(keys.loans, communicator_.loans_on(request, queues_.stream(queue), x.deadline));
  return keys;
}

}  // namespace longspan
