#include "providers/cudnn/layout.h"

#include <algorithm>
#include <cstdint>

namespace longspan::cudnn {
namespace {

int64_t row_of(const Entry& e, bool keys) { return keys ? e.k_row : e.q_row; }
int64_t rows_of(const Entry& e, bool keys) { return keys ? e.nk : e.nq; }

/// From a row to the next; that of a packed tensor where there is none.
int64_t row_stride(const TensorView& view, const Group& group, bool keys) {
  if (even(view) && view.rows() > 1) return view.offset(1, 0);
  for (const Entry& e : group.entries) {
    if (rows_of(e, keys) < 2) continue;
    const int64_t row = row_of(e, keys);
    return view.offset(row + 1, 0) - view.offset(row, 0);
  }
  return std::max(view.heads, int64_t{1}) * view.dim;
}

/// Whether the entry's rows lie `stride` apart and begin at multiples of `unit` elements. In a view
/// two strides at most alternate, so that the ends tell of all rows between them.
bool reachable(const TensorView& view, int64_t row, int64_t rows, int64_t stride, int64_t unit) {
  const int64_t first = view.offset(row, 0);
  return first % unit == 0 && view.offset(row + rows - 1, 0) - first == (rows - 1) * stride;
}

bool batched(const Group& group) { return !group.ragged && group.entries.size() > 1; }

}  // namespace

Layout layout_of(const TensorView& view, const Group& group, bool keys, int64_t heads) {
  const auto begin = [&](size_t i) { return view.offset(row_of(group.entries[i], keys), 0); };
  // Statistics are read one by one.
  const int64_t unit = view.dtype == DType::kF32 ? 1 : 8;
  Layout layout;
  Strides& s = layout.strides;
  s.row = row_stride(view, group, keys);
  s.head = heads > 1 ? view.stride_head : view.dim;
  s.batch = batched(group) ? begin(1) - begin(0) : (keys ? group.skv : group.sq) * s.row;
  const auto bytes = static_cast<uintptr_t>(unit * size_of(view.dtype));
  layout.direct = reinterpret_cast<uintptr_t>(view.data) % bytes == 0 && s.row > 0 &&
                  s.row % unit == 0 && s.head > 0 && s.head % unit == 0 && s.batch > 0;
  if (even(view)) return layout;
  for (size_t i = 0; i < group.entries.size() && layout.direct; ++i) {
    const Entry& e = group.entries[i];
    const bool apart = !batched(group) || begin(i) == begin(0) + static_cast<int64_t>(i) * s.batch;
    layout.direct = apart && reachable(view, row_of(e, keys), rows_of(e, keys), s.row, unit);
  }
  return layout;
}

bool even(const TensorView& view) {
  return view.pages == nullptr &&
         (view.batch == 1 || view.stride_batch == view.seq * view.stride_seq);
}

Strides packed_entries(const Group& group, bool keys, int64_t heads, int64_t dim) {
  return {(keys ? group.skv : group.sq) * heads * dim, heads * dim, dim};
}

int64_t first_element(const TensorView& view, const Group& group, bool keys) {
  return view.offset(row_of(group.entries[0], keys), 0);
}

}  // namespace longspan::cudnn
