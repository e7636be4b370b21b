#include "providers/cpu/rules.h"

#include <fmt/format.h>

namespace longspan::cpu {

std::optional<Decline> refusal(const TileProblem& problem, const Device& device) {
  if (device.name != "cpu") {
    return Decline{DeclineCode::kDevice, fmt::format("device {} is not cpu", device.name)};
  }
  if (device.workers == nullptr) {
    return Decline{DeclineCode::kDevice, "the device has no workers: make it by cpu_device()"};
  }
  if (problem.features.whole) {
    return Decline{DeclineCode::kWhole,
                   fmt::format("whole results are not offered on the cpu: leave them out and give "
                               "{} tensors of O and gradients, which are carried and added to",
                               name(accumulator(problem.dtype)))};
  }
  return longspan::refusal(problem);
}

}  // namespace longspan::cpu
