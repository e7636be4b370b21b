// delta, where a call comes without it.
#pragma once

#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::hopper {

/// Loads the kernel ahead of its first launch, which may be captured.
Status load_delta();

/// delta = rowsum(dout * o) of all rows and heads. `dout` and `o` are of one 16-bit type, with a
/// dim that is a multiple of 8; `delta` is f32.
Status make_delta(const TensorView& dout, const TensorView& o, const TensorView& delta,
                  Stream stream);

}  // namespace longspan::hopper
