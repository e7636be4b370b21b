// Attention in float64 over whole tensors: what results are held against.
#pragma once

#include "inputs.h"
#include "longspan/provider.h"
#include "progress.h"

namespace longspan::tool {

/// Packed float64 tensors [rows, heads, dim]; rows that hold no token are 0 (LSE -inf).
struct Reference {
  Tensor o, lse, dq, dk, dv;
};

/// Runs the provider cpu/reference on the inputs as they were rounded, with float64 results.
Result<Reference> compute_reference(const Inputs& inputs, const Device& device, Progress& progress);

/// The gradients that follow in float64 from O rounded to the problem's type: backward is given
/// that O, not the exact one. Its o and lse are those of `exact`'s forward, o rounded.
Result<Reference> gradients_of_rounded_o(const Inputs& inputs, const Reference& exact,
                                         const Device& device, Progress& progress);

}  // namespace longspan::tool
