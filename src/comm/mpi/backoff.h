// Pauses of a polling loop.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace longspan::comm {

/// Yields at first, because most answers are near, then sleeps: processes that share a core with
/// the one they wait for must leave it the core.
class Backoff {
 public:
  void pause() {
    if (rounds_ < kYields) {
      ++rounds_;
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, kLongest);
  }

 private:
  static constexpr int kYields = 200;
  static constexpr std::chrono::microseconds kLongest{500};
  int rounds_ = 0;
  std::chrono::microseconds sleep_{20};
};

}  // namespace longspan::comm
