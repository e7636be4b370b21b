// Element types and strided views of caller-owned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "longspan/status.h"

namespace longspan {

enum class DType { kF64, kF32, kF16, kBF16 };

std::string_view name(DType dtype);  // "f64", "f32", "f16", "bf16"
Result<DType> parse_dtype(std::string_view text);
inline constexpr int64_t size_of(DType dtype) {
  return dtype == DType::kF64 ? 8 : dtype == DType::kF32 ? 4 : 2;
}
/// What partial results, statistics and gradients accumulate in: f64 for f64, else f32.
inline constexpr DType accumulator(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// Where work is queued: a cudaStream_t on CUDA devices; the host has none.
struct Stream {
  void* handle = nullptr;
};

/// [batch, seq, heads, dim] in memory order given by the strides (in elements; dim is contiguous).
/// A packed (thd) tensor has batch 1 and seq = tokens. Row r is (r / seq, r % seq), so rows are
/// numbered batch-major whatever the layout in memory is. Statistics have dim 1.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t batch = 1;
  int64_t seq = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t stride_batch = 0;
  int64_t stride_seq = 0;
  int64_t stride_head = 0;
  /// Paged keys or values: `batch` entries, each the number of a page of `seq` rows in a pool of
  /// `page_count` pages that lie stride_batch apart. Null: no paging.
  const int32_t* pages = nullptr;
  int64_t page_count = 0;

  int64_t rows() const { return batch * seq; }
  /// Elements from the first element to that of (row, head, 0).
  int64_t offset(int64_t row, int64_t head) const {
    const int64_t block = pages == nullptr ? row / seq : pages[row / seq];
    return block * stride_batch + (row % seq) * stride_seq + head * stride_head;
  }
  /// Bytes from `data` to the end of the last element reached.
  int64_t extent_bytes() const;
};

/// The view of a contiguous packed tensor [rows, heads, dim].
inline TensorView packed_view(void* data, DType dtype, int64_t rows, int64_t heads, int64_t dim) {
  return {data, dtype, 1, rows, heads, dim, rows * heads * dim, heads * dim, dim};
}

}  // namespace longspan
