// The backward kernels that are built, as CMakeLists.txt lists them. The host includes this.
#pragma once

#include <cstdint>

#include "longspan/tensor.h"
#include "providers/hopper/backward/scratch.h"

namespace longspan::hopper {

struct BackwardKernel {
  const void* entry = nullptr;  // for the CUDA runtime
  int threads = 0;
  int shared_bytes = 0;  // dynamic ones
};

/// Recomputes P and dS of bf16 or f16, of scores with terms or without; takes ScoreParameters.
const BackwardKernel& score_kernel(DType dtype, bool terms);

/// Computes dV and dS of bf16 or f16, of plain scores; takes ValueParameters.
const BackwardKernel& value_kernel(DType dtype);

/// Computes gradients, so many columns at a time; takes GradientParameters.
const BackwardKernel& gradient_kernel(const GradientColumns& columns, DType dtype);

}  // namespace longspan::hopper
