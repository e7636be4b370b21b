// Tables that become one block of device memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "providers/rows/entries.h"

namespace longspan::rows {

/// Lays tables one behind the other, each aligned to kTableAlignment bytes.
class Tables {
 public:
  static constexpr size_t kTableAlignment = 16;  // what engines want of all tensors

  /// Where the table begins.
  template <class T>
  size_t append(const std::vector<T>& values) {
    const size_t place = (bytes_.size() + kTableAlignment - 1) / kTableAlignment * kTableAlignment;
    const size_t bytes = values.size() * sizeof(T);
    bytes_.resize(place + bytes);
    if (bytes > 0) std::memcpy(bytes_.data() + place, values.data(), bytes);
    return place;
  }
  size_t append_entries(std::span<const Entry> entries) { return append(device_entries(entries)); }

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace longspan::rows
