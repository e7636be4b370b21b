// Words that launches count in, in sets that one launch has at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/loan.h"

namespace longspan::comm {

/// Sets of kLoanCounters words, all 0 while nobody has them.
class CounterSets {
 public:
  static Result<CounterSets> make() {
    constexpr size_t kSets = 64;
    LONGSPAN_TRY(cuda::Memory memory, cuda::Memory::make(kSets * kSetBytes));
    LONGSPAN_CHECK_OK(cuda::fill(memory.data(), 0, kSets * kSetBytes));
    return CounterSets(std::move(memory), kSets);
  }

  /// Null when all are taken.
  uint32_t* take() {
    if (free_.empty()) return nullptr;
    uint32_t* const set = free_.back();
    free_.pop_back();
    return set;
  }
  /// The launch that had it is over.
  void give_back(uint32_t* set) {
    if (set != nullptr) free_.push_back(set);
  }

 private:
  static constexpr size_t kSetBytes = kLoanCounters * sizeof(uint32_t);

  CounterSets(cuda::Memory memory, size_t sets) : memory_(std::move(memory)) {
    auto* const words = static_cast<uint32_t*>(memory_.data());
    for (size_t i = sets; i > 0; --i) free_.push_back(words + (i - 1) * kLoanCounters);
  }

  cuda::Memory memory_;
  std::vector<uint32_t*> free_;
};

}  // namespace longspan::comm
