// Points in time for waits.
#pragma once

#include <algorithm>
#include <chrono>

namespace longspan::comm {

/// At most a year, so that "for ever" overflows no clock, which counts nanoseconds.
inline std::chrono::milliseconds capped(std::chrono::milliseconds wait) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return std::clamp(wait, std::chrono::milliseconds::zero(), kYear);
}

/// Now plus `wait`, capped.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds wait) {
  return std::chrono::steady_clock::now() + capped(wait);
}

}  // namespace longspan::comm
