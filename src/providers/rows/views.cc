#include "providers/rows/views.h"

#include <algorithm>

namespace longspan::rows {

bool even(const TensorView& view) {
  if (view.pages != nullptr) return false;
  return view.batch == 1 || view.stride_batch == view.seq * view.stride_seq;
}

bool aligned(const TensorView& view, int64_t bytes) {
  const int64_t unit = bytes / size_of(view.dtype);
  return reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(bytes) == 0 &&
         view.stride_batch % unit == 0 && view.stride_seq % unit == 0 &&
         view.stride_head % unit == 0;
}

TensorView flattened(TensorView view) {
  if (!even(view)) return view;
  view.seq = view.rows();
  view.batch = 1;
  return view;
}

RowView row_view(const TensorView& view) {
  const TensorView v = flattened(view);
  return {.data = static_cast<char*>(v.data),
          .stride_batch = v.stride_batch,
          .stride_seq = v.stride_seq,
          .stride_head = v.stride_head,
          .seq = static_cast<int32_t>(std::max<int64_t>(v.seq, 1)),
          .dim = static_cast<int32_t>(v.dim)};
}

}  // namespace longspan::rows
