// Rows of any strides, copied to where TMA can read them.
#pragma once

#include "longspan/mask.h"
#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::hopper {

/// Loads the kernel ahead of its first launch, which may be captured.
Status load_pack();

/// Copies rows of a view of 16-bit elements to the packed tensor [rows, heads, dim] at `to`, which
/// is aligned to 16 bytes; with the opposite sign if `negated`. dim is a multiple of 8.
Status pack(const TensorView& from, Range rows, void* to, bool negated, Stream stream);

}  // namespace longspan::hopper
