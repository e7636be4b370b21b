#include "providers/prepared/layout.h"

namespace longspan::prepared {
namespace {

using rows::Entry;

constexpr int64_t kUnit = 8;  // 16-bit elements of 16 bytes

int64_t first_row(const Entry& e, bool keys) { return keys ? e.k_row : e.q_row; }
int64_t row_count(const Entry& e, bool keys) { return keys ? e.nk : e.nq; }

/// Elements between rows of a tensor, 0 where there are several distances.
int64_t row_step(const TensorView& view) {
  if (view.batch == 1 || view.seq == 1 || view.stride_batch == view.seq * view.stride_seq) {
    if (view.rows() <= 1) return view.heads * view.dim;
    return view.seq > 1 ? view.stride_seq : view.stride_batch;
  }
  return 0;
}

/// Elements between the rows of every entry; 0 where they lie in unequal steps.
int64_t step_of(const TensorView& view, const Launch& launch, bool keys) {
  if (const int64_t step = row_step(view); step != 0) return step;
  const int64_t step = view.stride_seq;
  for (const Entry& e : launch.entries) {
    const int64_t row = first_row(e, keys);
    const int64_t rows = row_count(e, keys);
    if (view.offset(row + rows - 1, 0) - view.offset(row, 0) != (rows - 1) * step) return 0;
  }
  return step;
}

/// Elements from each entry to the next; nothing where that differs. Of packed rows: those of the
/// entry before.
std::optional<int64_t> batch_step(const TensorView& view, const Launch& launch, bool keys,
                                  int64_t step) {
  const auto begin = [&](size_t i) { return view.offset(first_row(launch.entries[i], keys), 0); };
  const int64_t count = row_count(launch.entries[0], keys);
  if (launch.entries.size() == 1) return count * step;
  const int64_t first = begin(1) - begin(0);
  for (size_t i = 1; i < launch.entries.size(); ++i) {
    const int64_t before = row_count(launch.entries[i - 1], keys) * step;
    if (begin(i) - begin(i - 1) != (launch.packed ? before : first)) return std::nullopt;
  }
  return first;
}

Operand operand(void* data, Element element, const Launch& launch, const Rows& rows,
                const std::array<int64_t, 3>& strides) {
  const int64_t count = rows.keys ? launch.sk() : launch.sq();
  Operand result{.data = data, .element = element};
  if (launch.packed) {
    result.rank = 3;
    result.shape = {count, rows.heads, rows.dim};
    result.strides = {strides[1], strides[2], 1};
  } else {
    result.rank = 4;
    result.shape = {launch.batch(), count, rows.heads, rows.dim};
    result.strides = {strides[0], strides[1], strides[2], 1};
  }
  return result;
}

/// Engines name heads before rows, in whatever order they lie.
Operand statistics(void* data, const Launch& launch, int64_t heads, int64_t batch, int64_t step) {
  Operand result{.data = data, .element = Element::kF32};
  if (launch.packed) {
    result.rank = 2;
    result.shape = {heads, launch.sq()};
    result.strides = {1, step};
  } else {
    result.rank = 3;
    result.shape = {launch.batch(), heads, launch.sq()};
    result.strides = {batch, 1, step};
  }
  return result;
}

}  // namespace

Element element_of(DType dtype) {
  if (dtype == DType::kF16) return Element::kF16;
  return dtype == DType::kBF16 ? Element::kBF16 : Element::kF32;
}

std::optional<Operand> in_place(const TensorView& view, const Launch& launch, const Rows& rows) {
  if (view.rows() == 0 || view.pages != nullptr || size_of(view.dtype) != 2) return std::nullopt;
  const int64_t step = step_of(view, launch, rows.keys);
  const int64_t head = rows.heads > 1 ? view.stride_head : rows.dim;
  if (step <= 0 || step % kUnit != 0 || head <= 0 || head % kUnit != 0) return std::nullopt;
  const std::optional<int64_t> batch = batch_step(view, launch, rows.keys, step);
  if (!batch || *batch <= 0 || *batch % kUnit != 0) return std::nullopt;
  const int64_t first = view.offset(first_row(launch.entries[0], rows.keys), 0);
  auto* const data = static_cast<uint16_t*>(view.data) + first;
  if (reinterpret_cast<uintptr_t>(data) % (2 * kUnit) != 0) return std::nullopt;
  return operand(data, element_of(view.dtype), launch, rows, {*batch, step, head});
}

std::optional<Operand> statistics_in_place(const TensorView& view, const Launch& launch) {
  if (view.rows() == 0 || view.dtype != DType::kF32) return std::nullopt;
  if (view.heads > 1 && view.stride_head != 1) return std::nullopt;
  const int64_t step = step_of(view, launch, false);
  if (step <= 0) return std::nullopt;
  const std::optional<int64_t> batch = batch_step(view, launch, false, step);
  if (!batch || *batch <= 0) return std::nullopt;
  const int64_t first = view.offset(launch.entries[0].q_row, 0);
  return statistics(static_cast<float*>(view.data) + first, launch, view.heads, *batch, step);
}

Operand statistics_in_scratch(void* data, const Launch& launch, int64_t heads) {
  return statistics(data, launch, heads, launch.sq() * heads, heads);
}

Operand in_scratch(void* data, Element element, const Launch& launch, const Rows& rows) {
  const int64_t row = rows.heads * rows.dim;
  const int64_t count = rows.keys ? launch.sk() : launch.sq();
  return operand(data, element, launch, rows, {count * row, row, rows.dim});
}

}  // namespace longspan::prepared
