// Children that break a promise in trap mode: each ends a process of its own. They first do a good
// call and say so, so that one that never ran is not taken for one that trapped.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longspan/engine.h"

namespace longspan::testing {

using Lengths = std::vector<int32_t>;

/// How one child breaks a promise.
struct Breach {
  Direction direction = Direction::kForward;
  std::optional<Promise> added;  // nothing: lengths within capacity
  bool replay = false;           // in a captured graph
  Lengths q, k;
};

/// What the children run.
struct Guarded {
  std::string problem;   // with device_lengths=true
  Lengths full;          // its lengths
  std::string provider;  // required
  /// Before the device is used.
  std::function<Status()> open = [] { return Status(); };
};

/// Forks a child for each breach. Fails for each that did not run a good call, then trap. The
/// process must not have used CUDA before.
void expect_traps(const Guarded& guarded, const std::vector<Breach>& breaches);

}  // namespace longspan::testing
