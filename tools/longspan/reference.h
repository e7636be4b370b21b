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

}  // namespace longspan::tool
