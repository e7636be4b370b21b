// Checks predicates at every execution of a call.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "guard/predicate.h"
#include "longspan/device.h"
#include "longspan/promise.h"
#include "longspan/tensor.h"

namespace longspan::guard {

/// Where executions leave the first violation that nobody has read yet. From any thread.
class Report {
 public:
  virtual ~Report() = default;
  /// Reads and clears it; looks at the host's memory alone.
  virtual std::optional<Violation> take() = 0;
};

/// Scratch of one execution, a part of its workspace. Aligned like the workspace.
inline constexpr size_t kScratchBytes = 64;

/// Of the calls of one problem. Immutable; queues on the stream, allocates nothing, and may be
/// captured.
class Guard {
 public:
  virtual ~Guard() = default;
  /// Before anything that relies on a promise: notes the first violation in `scratch` and in the
  /// report, or traps.
  virtual Status check(const Arrays& arrays, void* scratch, Stream stream) const = 0;
  /// Behind everything that writes the outputs: they become NaN where check() met a violation.
  /// Absent ones have no data.
  virtual Status poison(std::span<const TensorView> outputs, const void* scratch,
                        Stream stream) const = 0;
};

/// Most outputs of one call.
inline constexpr size_t kMostOutputs = 8;

/// invalid_argument for a policy that the device has not.
Status check_policy(GuardPolicy policy, const Device& device);
Result<std::shared_ptr<Report>> make_report(const Device& device);
/// The report outlives the guard's executions.
Result<std::unique_ptr<const Guard>> make_guard(std::vector<Predicate> predicates,
                                                GuardPolicy policy, const Device& device,
                                                std::shared_ptr<Report> report);

}  // namespace longspan::guard
