// Attention in float64 over whole tensors: what results are held against.
#pragma once

#include "inputs.h"
#include "longspan/provider.h"
#include "progress.h"
#include "results.h"

namespace longspan::tool {

/// Float64: packed tensors [rows, heads, dim], rows that hold no token are 0 (LSE -inf); dsink,
/// dbias and max_logit as side_tensor().
using Reference = ResultTensors;

/// Runs the provider cpu/reference on the inputs as they were rounded, with float64 results.
Result<Reference> compute_reference(const Inputs& inputs, const Device& device, Progress& progress,
                                    bool forward_only = false);

}  // namespace longspan::tool
