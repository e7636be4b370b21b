#include "engine/queues.h"

namespace longspan {

Result<std::unique_ptr<Queues>> make_queues(const Device& device, bool alone) {
  if (device.is_cuda() && alone) return make_cuda_queues(device);
  return std::make_unique<Queues>();
}

std::vector<bool> awaited_elsewhere(const Schedule& schedule) {
  if (schedule.queues() == 1) return {};
  // A transfer is waited for by the queue that comes first; the others wait for that.
  std::vector<bool> awaited(schedule.steps.size(), false);
  const auto note = [&](StepId earlier, int queue) {
    const Step& step = schedule.steps[static_cast<size_t>(earlier)];
    if (step.lane == Lane::kTransfer || step.queue != queue) {
      awaited[static_cast<size_t>(earlier)] = true;
    }
  };
  for (const Step& step : schedule.steps) {
    for (const StepId earlier : step.after) note(earlier, step.queue);
    for (const Part& part : step.parts) {
      if (part.after != kNone) note(part.after, step.queue);
    }
  }
  return awaited;
}

}  // namespace longspan
