// How engines are given rows of the caller's tensors, and rows in scratch memory.
#pragma once

#include <cstdint>
#include <optional>

#include "longspan/tensor.h"
#include "providers/prepared/launches.h"
#include "providers/prepared/values.h"

namespace longspan::prepared {

/// Which rows of a launch, and how many heads and elements each has.
struct Rows {
  bool keys = false;
  int64_t heads = 0;
  int64_t dim = 0;
};

/// The entries' rows where they are, if an engine can use them: 16 bytes of 16-bit elements at a
/// time, rows in equal steps, entries at equal distances or, packed, one behind the other.
std::optional<Operand> in_place(const TensorView& view, const Launch& launch, const Rows& rows);

/// The entries' rows one behind the other, [rows, heads, dim], at `data`.
Operand in_scratch(void* data, Element element, const Launch& launch, const Rows& rows);

/// Statistics of the entries' rows, [rows, heads] or at equal distances, where an engine can use
/// them where they are: the heads of a row side by side, else nothing.
std::optional<Operand> statistics_in_place(const TensorView& view, const Launch& launch);

/// Statistics of the entries' rows one behind the other, [rows, heads], at `data`.
Operand statistics_in_scratch(void* data, const Launch& launch, int64_t heads);

Element element_of(DType dtype);

}  // namespace longspan::prepared
