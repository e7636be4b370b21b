// The reference's workspace: float64 copies of a tile's rows, then a buffer for each thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/workers.h"
#include "providers/cpu/reference_rows.h"

namespace longspan::cpu {

/// Rows of one operand, head after head. Row 0 is the tile's first.
struct Rows {
  int64_t offset = 0;  // doubles before them
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;

  double* at(double* memory, int64_t row, int64_t head) const {
    return memory + offset + (head * rows + row) * dim;
  }

  /// Fills in rows [first, first + count) of `view`.
  void read(Workers& workers, const TensorView& view, int64_t first, int64_t count,
            double* memory) const {
    workers.for_each(count, [&](int64_t i, int) {
      for (int64_t head = 0; head < heads; ++head) {
        read_row(view, first + i, head, at(memory, i, head));
      }
    });
  }
};

/// Hands out places, rows before buffers.
class ReferenceMemory {
 public:
  Rows rows(int64_t rows, int64_t heads, int64_t dim) {
    const Rows placed{taken_, rows, heads, dim};
    taken_ += rows * heads * dim;
    return placed;
  }
  void buffers(int64_t doubles) { buffer_ = doubles; }

  double* buffer(double* memory, int slot) const { return memory + taken_ + slot * buffer_; }
  size_t bytes(int threads) const {
    return static_cast<size_t>(taken_ + buffer_ * threads) * sizeof(double);
  }

 private:
  int64_t taken_ = 0;
  int64_t buffer_ = 0;
};

}  // namespace longspan::cpu
