#include <utility>

#include "schedule/corruptions.h"

namespace longspan::test {
namespace {

/// Applies `moved` to every step number; kNone takes the edge away.
template <class F>
void renumber(Schedule& schedule, F moved) {
  for (Step& step : schedule.steps) {
    std::vector<StepId> after;
    for (const StepId id : step.after) {
      if (moved(id) != kNone) after.push_back(moved(id));
    }
    step.after = std::move(after);
    for (Part& part : step.parts) {
      if (part.after != kNone) part.after = moved(part.after);
    }
  }
}

}  // namespace

void remove_step(Schedule& schedule, StepId id) {
  schedule.steps.erase(schedule.steps.begin() + id);
  renumber(schedule, [id](StepId other) {
    if (other == id) return kNone;
    return other > id ? other - 1 : other;
  });
}

void insert_step(Schedule& schedule, StepId id, Step step) {
  renumber(schedule, [id](StepId other) { return other >= id ? other + 1 : other; });
  schedule.steps.insert(schedule.steps.begin() + id, std::move(step));
}

}  // namespace longspan::test
