// Views as threads read and write them, and copies of them that any engine can read.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "longspan/mask.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::rows {

/// A tensor that threads read and write. Row r is row r % seq of batch entry r / seq; strides count
/// elements.
struct RowView {
  char* data = nullptr;
  int64_t stride_batch = 0, stride_seq = 0, stride_head = 0;
  int32_t seq = 1;
  int32_t dim = 0;

  template <class T>
  LONGSPAN_HOST_DEVICE T* at(int32_t row, int32_t head) const {
    const int32_t batch = row < seq ? 0 : row / seq;
    return reinterpret_cast<T*>(data) + batch * stride_batch + (row - batch * seq) * stride_seq +
           head * stride_head;
  }
};

RowView row_view(const TensorView& view);

/// Whether every row lies stride_seq behind the one before it.
bool even(const TensorView& view);

/// The same rows in one batch entry, where they lie so.
TensorView flattened(TensorView view);

/// Whether elements of rows may be reached `bytes` at a time.
bool aligned(const TensorView& view, int64_t bytes);

/// Loads the kernel of pack_view ahead of its first launch, which may be captured.
Status load_pack_view();

/// Copies rows of a view of 16-bit elements, which may be paged, to the packed tensor [rows, heads,
/// dim] at `to`, which is aligned to 16 bytes; with the opposite sign if `negated`. dim is a
/// multiple of 8.
Status pack_view(const TensorView& from, Range rows, void* to, bool negated, Stream stream);

}  // namespace longspan::rows
