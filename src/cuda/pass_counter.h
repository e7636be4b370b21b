// How often streams have passed a place, replays of captured graphs included.
#pragma once

#include <cstdint>
#include <utility>

#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::cuda {

class PassCounter {
 public:
  /// For streams of the current device. Not while a stream is captured.
  static Result<PassCounter> make();
  PassCounter(PassCounter&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
  PassCounter& operator=(PassCounter&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~PassCounter();

  /// Counts when the stream gets here: one kernel of one thread.
  Status count(Stream stream) const;
  /// From any thread.
  uint64_t passed() const;

 private:
  explicit PassCounter(uint64_t* count) : count_(count) {}
  uint64_t* count_ = nullptr;  // host memory that the device reaches
};

}  // namespace longspan::cuda
