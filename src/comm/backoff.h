// Pauses of a polling loop.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace longspan::comm {

/// Yields at first, because most answers are near and MPI moves long messages only while both sides
/// poll; then sleeps: processes that share a core with the one they wait for must leave it the
/// core.
class Backoff {
 public:
  void pause() {
    if (std::chrono::steady_clock::now() - since_ < kEager) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, kLongest);
  }

  /// Something moved: more is near.
  void reset() {
    since_ = std::chrono::steady_clock::now();
    sleep_ = kShortest;
  }

 private:
  static constexpr std::chrono::milliseconds kEager{4};
  static constexpr std::chrono::microseconds kShortest{20};
  static constexpr std::chrono::microseconds kLongest{200};
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::chrono::microseconds sleep_ = kShortest;
};

}  // namespace longspan::comm
