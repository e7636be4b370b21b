// Host memory that a communicator hands out and takes back with itself.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "longspan/status.h"

namespace longspan::comm {

/// Not thread-safe, like the communicator that holds it.
class HostMemory {
 public:
  /// Aligned to 64 bytes, never null. out_of_memory names the size.
  Result<void*> allocate(size_t bytes, const char* where);
  /// Null and memory that is not from here are left alone.
  void release(void* data);

 private:
  struct Free {
    void operator()(void* data) const;
  };
  std::unordered_map<void*, std::unique_ptr<void, Free>> blocks_;
};

}  // namespace longspan::comm
