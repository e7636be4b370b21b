// The kernels that are built, as CMakeLists.txt lists them. The host includes this.
#pragma once

#include "longspan/tensor.h"
#include "providers/hopper/heuristics.h"

namespace longspan::hopper {

struct Kernel {
  const void* entry = nullptr;  // for the CUDA runtime; takes Parameters
  int threads = 0;
  int shared_bytes = 0;   // dynamic ones
  bool stages_o = false;  // whole results leave by TMA, where they lie so that it can
};

/// The kernel of a shape for bf16 or f16, with whole or merged results.
const Kernel& kernel_of(Shape shape, DType dtype, bool whole);

}  // namespace longspan::hopper
