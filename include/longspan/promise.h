// What callers claim about values that only the device knows.
#pragma once

#include <string_view>

#include "longspan/status.h"

namespace longspan {

/// A claim about the operands of every call. A guard checks it on the device at every execution,
/// replays of captured graphs included.
enum class Promise {
  kDeviceLengths,  // each actual length lies in [0, capacity]: part of every device_lengths problem
  kUniformLengths,  // each actual length is the capacity: schedules need not trim anything
};

/// What a guard does about a claim that does not hold.
enum class GuardPolicy {
  kReport,  // outputs become NaN, and the engine returns guard_failed: see Engine::synchronize
  kTrap,    // the device traps; the process can use it no more. CUDA devices only
};

std::string_view name(Promise promise);     // "device_lengths", "uniform_lengths"
std::string_view name(GuardPolicy policy);  // "report", "trap"

/// One that a caller may add to a problem's own: "uniform_lengths". Others are invalid_argument.
Result<Promise> parse_promise(std::string_view text);
Result<GuardPolicy> parse_guard_policy(std::string_view text);

}  // namespace longspan
