// Rows of any strides, and of pages, copied to where TMA can read them.
#pragma once

#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::hopper {

/// Loads the kernel ahead of its first launch, which may be captured.
Status load_pack();

/// Copies the first `rows` rows of a view of 16-bit elements, which may be paged, to the packed
/// tensor [rows, heads, dim] at `to`, which is aligned to 16 bytes; with the opposite sign if
/// `negated`. dim is a multiple of 8.
Status pack(const TensorView& from, int64_t rows, void* to, bool negated, Stream stream);

}  // namespace longspan::hopper
