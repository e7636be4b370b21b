// Lets work items that add to the same rows do so in a fixed order, without waiting for whole
// items.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace longspan::cpu {

/// Items are numbered and start in ascending order; each passes through `steps` positions in order.
/// An item may wait until an earlier one has passed a position. As waits only look back, the lowest
/// unfinished item never waits and no wait is forever.
class Tickets {
 public:
  explicit Tickets(int64_t steps) : span_(steps + 2) {}

  /// The item takes its slot over, once the item that had it is done.
  void start(int64_t item) {
    if (item >= kSlots) await(item - kSlots, span_ - 1);
    slot(item).store(item * span_, std::memory_order_release);
  }

  /// All positions below `position` are passed or skipped.
  void pass(int64_t item, int64_t position) {
    slot(item).store(item * span_ + position, std::memory_order_release);
  }

  void finish(int64_t item) { pass(item, span_ - 1); }

  /// Returns when `item`, an earlier one, has passed every position below `position`. A later item
  /// in its slot means that it is done.
  void await(int64_t item, int64_t position) {
    const int64_t needed = item * span_ + position;
    for (int spins = 0; slot(item).load(std::memory_order_acquire) < needed; ++spins) {
      if (spins >= kSpins) std::this_thread::yield();
    }
  }

 private:
  static constexpr int64_t kSlots = 64;
  static constexpr int kSpins = 2000;

  struct alignas(64) Slot {
    std::atomic<int64_t> value{-1};
  };

  std::atomic<int64_t>& slot(int64_t item) {
    return slots_[static_cast<size_t>(item % kSlots)].value;
  }

  int64_t span_;
  std::array<Slot, kSlots> slots_;
};

}  // namespace longspan::cpu
