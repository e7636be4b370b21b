// Points in time for waits.
#pragma once

#include <algorithm>
#include <chrono>

namespace longspan::comm {

/// Now plus `wait`. Waits are capped at a year, so that "for ever" cannot overflow the clock.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds wait) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() +
         std::clamp(wait, std::chrono::milliseconds::zero(), kYear);
}

}  // namespace longspan::comm
