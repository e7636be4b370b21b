#include <algorithm>

#include "schedule/work.h"

namespace longspan {

Cost cost(const Schedule& schedule, const Topology& topology, const Rates& rates) {
  Cost cost = cost_without_time(schedule);
  double now = 0;        // the rank itself, walking its list
  double send_free = 0;  // its two directions
  double recv_free = 0;
  const auto wait = [&](StepId step) {
    if (step != kNone) now = std::max(now, cost.spans[static_cast<size_t>(step)].end);
  };
  const auto compute = [&](Span& span, double seconds) {
    now += seconds;
    span.end = now;
    cost.compute_seconds += seconds;
  };
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    Span& span = cost.spans[i];
    for (const StepId earlier : step.after) wait(earlier);
    span.begin = now;
    if (step.lane == Lane::kCompute && step.parts.empty()) {
      compute(span, step_seconds(schedule, step, rates));
    }
    for (const Part& part : step.parts) {
      wait(part.after);
      const bool first = &part == &step.parts.front();
      if (first) span.begin = now;
      compute(span, (first ? rates.launch_seconds : 0) + part_seconds(schedule, part, rates));
    }
    double first_begin = step.messages.empty() ? span.begin : -1;
    for (const Message& message : step.messages) {
      double& free = message.kind == TransferKind::kSend ? send_free : recv_free;
      const double seconds = message_seconds(message, schedule.rank, topology, rates);
      const double begin = std::max(now, free);
      first_begin = first_begin < 0 ? begin : std::min(first_begin, begin);
      free = begin + seconds;
      span.end = std::max(span.end, free);
      cost.transfer_seconds += seconds;
    }
    span.begin = first_begin;
    cost.seconds = std::max(cost.seconds, span.end);
  }
  return cost;
}

}  // namespace longspan
