// Parts of scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longspan::rows {

/// Lays parts one behind the other, each aligned to kPartAlignment bytes.
class Places {
 public:
  static constexpr size_t kPartAlignment = 256;

  /// Where the next part begins, of `bytes`.
  size_t take(int64_t bytes) {
    const size_t place = end_;
    end_ += (static_cast<size_t>(bytes) + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    return place;
  }
  size_t end() const { return end_; }

 private:
  size_t end_ = 0;
};

}  // namespace longspan::rows
