// What callers claim about values that only the device knows.
#pragma once

#include <string_view>

#include "longspan/status.h"

namespace longspan {

/// A claim about the operands of every call. A guard checks it on the device at every execution,
/// replays of captured graphs included.
enum class Promise {
  kDeviceLengths,  // each actual length lies in [0, capacity]: part of every device_lengths problem
  // Each actual length is the capacity: schedules need not trim anything. The others are this and
  // something about the layout, which is checked when the problem is prepared:
  kUniformLengths,
  kCompactLengths,    // sequences lie one behind the other without a gap; none has queries alone
  kPitchedAllGather,  // all have one length and lie at one distance; all_gather, causal
};

/// What a guard does about a claim that does not hold.
enum class GuardPolicy {
  kReport,  // outputs become NaN, and the engine returns guard_failed: see Engine::synchronize
  kTrap,    // the device traps; the process can use it no more. CUDA devices only
};

/// "device_lengths", "uniform_lengths", "compact_lengths", "pitched_all_gather"
std::string_view name(Promise promise);
std::string_view name(GuardPolicy policy);  // "report", "trap"

/// One that a caller may add to a problem's own: all but device_lengths, which is invalid_argument.
Result<Promise> parse_promise(std::string_view text);
Result<GuardPolicy> parse_guard_policy(std::string_view text);

}  // namespace longspan
