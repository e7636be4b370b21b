// Views as kernels read and write them.
#pragma once

#include <cstdint>

#include "longspan/status.h"
#include "longspan/tensor.h"
#include "providers/hopper/forward/kernels.h"
#include "providers/hopper/forward/parameters.h"

namespace longspan::hopper {

using rows::aligned;
using rows::even;
using rows::row_view;

/// Whether rows of the view can be read by TMA: 16-byte aligned rows, strides above 0.
bool mappable(const TensorView& view);

/// Whether rows [first, last) leave their batch entry, in a view that is not even.
bool crosses(const TensorView& view, int64_t first, int64_t last);

/// A tensor map of a mappable view of 16-bit elements; what lies outside the view reads as zeros.
Result<Mapped> map_rows(const TensorView& view, const Box& box);

}  // namespace longspan::hopper
