#include "providers/cudnn/layout.h"

#include <algorithm>
#include <cstdint>

namespace longspan::cudnn {
namespace {

constexpr int64_t kUnit = 8;  // 16-bit elements in 16 bytes

int64_t row_of(const Entry& e, bool keys) { return keys ? e.k_row : e.q_row; }
int64_t rows_of(const Entry& e, bool keys) { return keys ? e.nk : e.nq; }

/// From a row of an entry to the next; that of a packed tensor where no entry has two rows.
int64_t row_stride(const TensorView& view, const Group& group, bool keys) {
  for (const Entry& e : group.entries) {
    if (rows_of(e, keys) < 2) continue;
    const int64_t row = row_of(e, keys);
    return view.offset(row + 1, 0) - view.offset(row, 0);
  }
  return std::max(view.heads, int64_t{1}) * view.dim;
}

/// Whether the entry's rows lie `stride` apart and begin where 16 bytes may be read. In a view two
/// strides at most alternate, so that the ends tell of all rows between them.
bool reachable(const TensorView& view, int64_t row, int64_t rows, int64_t stride) {
  const int64_t first = view.offset(row, 0);
  return first % kUnit == 0 && view.offset(row + rows - 1, 0) - first == (rows - 1) * stride;
}

bool batched(const Group& group) { return !group.ragged && group.entries.size() > 1; }

}  // namespace

Layout layout_of(const TensorView& view, const Group& group, bool keys, int64_t heads) {
  const auto begin = [&](size_t i) { return view.offset(row_of(group.entries[i], keys), 0); };
  Layout layout;
  Strides& s = layout.strides;
  s.row = row_stride(view, group, keys);
  s.head = heads > 1 ? view.stride_head : view.dim;
  s.batch = batched(group) ? begin(1) - begin(0) : (keys ? group.skv : group.sq) * s.row;
  layout.direct = reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && s.row > 0 &&
                  s.row % kUnit == 0 && s.head % kUnit == 0 && s.batch > 0;
  for (size_t i = 0; i < group.entries.size() && layout.direct; ++i) {
    const Entry& e = group.entries[i];
    const bool even = !batched(group) || begin(i) == begin(0) + static_cast<int64_t>(i) * s.batch;
    layout.direct = even && reachable(view, row_of(e, keys), rows_of(e, keys), s.row);
  }
  return layout;
}

Strides packed_tensor(const Group& group, bool keys, int64_t heads, int64_t dim) {
  const std::vector<Entry>& entries = group.entries;
  if (!batched(group)) return packed_entries(group, keys, heads, dim);
  const int64_t step = row_of(entries[1], keys) - row_of(entries[0], keys);
  return {step * heads * dim, heads * dim, dim};
}

Strides packed_entries(const Group& group, bool keys, int64_t heads, int64_t dim) {
  return {(keys ? group.skv : group.sq) * heads * dim, heads * dim, dim};
}

int64_t first_element(const TensorView& view, const Group& group, bool keys) {
  return group.ragged ? 0 : view.offset(row_of(group.entries[0], keys), 0);
}

}  // namespace longspan::cudnn
