// How rows of the caller's tensors lie in memory, as cuDNN's graphs describe it.
#pragma once

#include "longspan/tensor.h"
#include "providers/cudnn/graph.h"
#include "providers/cudnn/groups.h"

namespace longspan::cudnn {

struct Layout {
  Strides strides;
  /// Whether cuDNN can use the rows where they are: 16 bytes of 16-bit elements at a time, the rows
  /// of an entry in equal steps and the entries of a batch at equal distances.
  bool direct = true;
};

/// Of the group's rows of queries or `keys`, for the first `heads` heads of the view.
Layout layout_of(const TensorView& view, const Group& group, bool keys, int64_t heads);

/// Whether all rows of the view lie in equal steps.
bool even(const TensorView& view);

/// Strides of the entries' rows, [rows, heads, dim] one entry behind the other, as scratch memory
/// holds them.
Strides packed_entries(const Group& group, bool keys, int64_t heads, int64_t dim);

/// Elements from the view's first to the first row of the first entry: the address that a graph is
/// given.
int64_t first_element(const TensorView& view, const Group& group, bool keys);

}  // namespace longspan::cudnn
