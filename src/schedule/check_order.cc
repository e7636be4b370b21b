#include <algorithm>

#include "schedule/check.h"

namespace longspan::proof {

Order::Order(const Schedule& schedule)
    : schedule_(schedule),
      ordinal_(schedule.steps.size(), kNone),
      last_compute_(schedule.steps.size()) {
  int32_t transfers = 0;
  const auto count = static_cast<StepId>(schedule.steps.size());
  for (StepId id = 0; id < count; ++id) {
    if (is_transfer(schedule, id)) ordinal_[static_cast<size_t>(id)] = transfers++;
  }
  words_ = (static_cast<size_t>(transfers) + 63) / 64;
  bits_.resize(2 * schedule.steps.size() * words_, 0);

  Reached compute;  // the last step of each queue
  compute.fill(kNone);
  for (StepId id = 0; id < count; ++id) {
    const Step& step = step_of(schedule, id);
    const auto index = static_cast<size_t>(id);
    const size_t start = 2 * index;
    last_compute_[index].fill(kNone);
    const StepId previous = compute[static_cast<size_t>(step.queue)];
    if (step.lane == Lane::kCompute && previous != kNone) follow(index, previous);
    for (const StepId earlier : step.after) follow(index, earlier);
    unite(start + 1, start);
    for (const Part& part : step.parts) {
      if (part.after != kNone) unite(start + 1, 2 * static_cast<size_t>(part.after) + 1);
    }
    if (step.lane == Lane::kCompute) {
      compute[static_cast<size_t>(step.queue)] = id;
    } else {
      add(start + 1, id);
    }
  }
}

/// `earlier`, and all that was done before it, is done when the step starts.
void Order::follow(size_t index, StepId earlier) {
  unite(2 * index, 2 * static_cast<size_t>(earlier) + 1);
  Reached& reached = last_compute_[index];
  const Reached& before = last_compute_[static_cast<size_t>(earlier)];
  for (size_t queue = 0; queue < reached.size(); ++queue) {
    reached[queue] = std::max(reached[queue], before[queue]);
  }
  if (is_transfer(schedule_, earlier)) return;
  StepId& own = reached[static_cast<size_t>(step_of(schedule_, earlier).queue)];
  own = std::max(own, earlier);
}

bool Order::holds(size_t set, StepId transfer) const {
  const auto bit = static_cast<size_t>(ordinal_[static_cast<size_t>(transfer)]);
  return (bits_[set * words_ + bit / 64] >> (bit % 64) & 1) != 0;
}

void Order::unite(size_t set, size_t other) {
  for (size_t i = 0; i < words_; ++i) bits_[set * words_ + i] |= bits_[other * words_ + i];
}

void Order::add(size_t set, StepId transfer) {
  const auto bit = static_cast<size_t>(ordinal_[static_cast<size_t>(transfer)]);
  bits_[set * words_ + bit / 64] |= uint64_t{1} << (bit % 64);
}

bool Order::before(StepId earlier, StepId later, size_t parts) const {
  if (earlier >= later) return false;
  if (!is_transfer(schedule_, earlier)) {
    const auto queue = static_cast<size_t>(step_of(schedule_, earlier).queue);
    return earlier <= last_compute_[static_cast<size_t>(later)][queue];
  }
  if (holds(2 * static_cast<size_t>(later), earlier)) return true;
  const Step& step = step_of(schedule_, later);
  for (size_t i = 0; i < parts; ++i) {
    const StepId arrival = step.parts[i].after;
    if (arrival != kNone && holds(2 * static_cast<size_t>(arrival) + 1, earlier)) return true;
  }
  return false;
}

}  // namespace longspan::proof
