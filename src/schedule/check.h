// The proofs behind check(), one file each. Internal to this folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "longspan/schedule.h"

namespace longspan::proof {

/// kInternal at "schedule", naming rank, step and buffer (kNone where there is none).
Error defect(const Schedule& schedule, StepId step, BufferId buffer, std::string_view what);

inline const Buffer& buffer_of(const Schedule& schedule, BufferId id) {
  return schedule.buffers[static_cast<size_t>(id)];
}
inline const Step& step_of(const Schedule& schedule, StepId id) {
  return schedule.steps[static_cast<size_t>(id)];
}

inline bool is_transfer(const Schedule& schedule, StepId id) {
  return step_of(schedule, id).lane == Lane::kTransfer;
}

inline bool is_attend(StepKind kind) {
  return kind == StepKind::kAttend || kind == StepKind::kAttendBackward;
}

/// Whether the rows are those of queries; else they are those of keys.
inline bool of_queries(Quantity quantity) {
  return quantity != Quantity::kK && quantity != Quantity::kV && quantity != Quantity::kDk &&
         quantity != Quantity::kDv;
}

/// Gradients add up: their partial results may be taken once only.
inline bool is_gradient(Quantity quantity) {
  return quantity == Quantity::kDq || quantity == Quantity::kDk || quantity == Quantity::kDv;
}

/// Results that attend steps build up bit by bit.
inline bool is_accumulated(Direction direction, Quantity quantity) {
  if (direction == Direction::kBackward) return is_gradient(quantity);
  return quantity == Quantity::kO || quantity == Quantity::kLse || quantity == Quantity::kMaxLogit;
}

/// Tensors of the call that the direction writes.
inline bool is_output(Direction direction, const Buffer& buffer) {
  return buffer.space == Space::kOperand && is_accumulated(direction, buffer.quantity);
}

/// Whether some row of [begin, end) is declared to hold a valid token.
bool holds_tokens(const Buffer& buffer, int64_t begin, int64_t end);

/// Finds the run that holds a row. Lookups are mostly near the last one of the same buffer.
class RunFinder {
 public:
  explicit RunFinder(const Schedule& schedule)
      : schedule_(schedule), hints_(schedule.buffers.size(), 0) {}

  /// Null when the row holds no valid token.
  const Run* find(BufferId id, int64_t row);

 private:
  const Schedule& schedule_;
  std::vector<size_t> hints_;
};

/// What is known to be done when a step starts. The contract alone counts: compute steps of a queue
/// follow each other, a transfer is done when something waited for it, and nothing else is ordered.
class Order {
 public:
  explicit Order(const Schedule& schedule);

  /// Whether `earlier` (of a smaller index) is done before `later` starts. `parts` counts the parts
  /// of `later` whose arrivals have been waited for as well: parts run in order.
  bool before(StepId earlier, StepId later, size_t parts = 0) const;

 private:
  using Reached = std::array<StepId, kMostQueues>;

  void follow(size_t index, StepId earlier);
  bool holds(size_t set, StepId transfer) const;
  void unite(size_t set, size_t other);
  void add(size_t set, StepId transfer);

  const Schedule& schedule_;
  size_t words_ = 0;
  std::vector<int32_t> ordinal_;       // of each transfer step
  std::vector<Reached> last_compute_;  // of each queue, done before the step starts
  std::vector<uint64_t> bits_;         // sets of transfers: per step, at its start and at its end
};

/// One side of a message: its peer, and buffers that lie as one piece. Part of check_steps.
Status check_message(const Schedule& schedule, StepId id, const Message& message);
/// Sinks enter every row once, after its last tile. Part of check_steps.
Status check_sinks(const Setting& setting, const Schedule& schedule);
/// One schedule alone: each buffer's shape, type, place and declared rows and heads.
Status check_buffers(const Setting& setting, const Schedule& schedule);
/// Each step's fields: what its kind allows, indices, shapes, types, and what the provider is
/// asked.
Status check_steps(const Setting& setting, const Schedule& schedule);
/// Copies and tiles find the tokens and heads they claim.
Status check_contents(const Setting& setting, const Schedule& schedule);
/// No read before the write, no race, no shared byte in use, no partial result lost or taken twice,
/// every output row written once.
Status check_accesses(const Schedule& schedule);
/// All ranks: messages match.
Status check_messages(std::span<const Schedule> schedules);
/// All ranks: communicators that match messages by their order alone, and run each rank's transfers
/// one after the other in the order of the list, carry them without a deadlock. So then does every
/// other communicator.
Status check_in_order(std::span<const Schedule> schedules);
/// All ranks: who pulls from a rank is a reader there, and what it reads needs no transfer.
Status check_pulls(const Setting& setting, std::span<const Schedule> schedules);
/// All ranks: the tiles are every visible pair of every head exactly once.
Status check_coverage(const Setting& setting, std::span<const Schedule> schedules);

}  // namespace longspan::proof
