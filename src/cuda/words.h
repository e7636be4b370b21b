// Words of device memory that streams wait for and write by themselves, without a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/runtime.h"

namespace longspan::cuda {

/// A list of such operations, queued together. Works under capture.
class WordOperations {
 public:
  /// Until the word, which lies in memory of the stream's device, is positive.
  void wait(uint32_t* word) { operations_.push_back({word, 0, true}); }
  /// The word may lie on any device. Everything before in the stream is visible to who reads it.
  void write(uint32_t* word, uint32_t value) { operations_.push_back({word, value, false}); }

  /// Queues the list in its order, and empties it.
  Status enqueue(Stream stream);

 private:
  struct Operation {
    uint32_t* word;
    uint32_t value;
    bool waits;
  };

  std::vector<Operation> operations_;
};

}  // namespace longspan::cuda
