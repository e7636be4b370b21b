// Owned, aligned host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "longspan/status.h"

namespace longspan::tool {

/// Bytes aligned to 64, contents arbitrary. Movable.
class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes)
      : data_(bytes == 0 ? nullptr
                         : static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))),
        size_(bytes) {}

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Release {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Release> data_;
  size_t size_ = 0;
};

/// invalid_argument when `bytes` exceeds the memory of this machine; `what` says what they are for.
Status fits_in_memory(double bytes, const char* what);

}  // namespace longspan::tool
