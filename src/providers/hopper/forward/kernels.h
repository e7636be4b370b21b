// The kernels that are built, as CMakeLists.txt lists them. The host includes this.
#pragma once

#include "longspan/tensor.h"
#include "providers/hopper/heuristics.h"

namespace longspan::hopper {

/// What one barrier step of TMA brings: rows of `heads` heads, `blocks` times 64 columns.
struct Box {
  int rows = 0;
  int blocks = 0;
  int heads = 1;
};

struct Kernel {
  const void* entry = nullptr;  // for the CUDA runtime; takes Parameters
  int threads = 0;
  int rows = 0, keys = 0;  // queries of all heads of a block of threads, keys of a step
  int shared_bytes = 0;    // dynamic ones
  Box q, k, v;
  int pull_bytes = 0;     // of a unit that it moves from other ranks; 0: it moves none
  bool stages_o = false;  // whole results leave by TMA in boxes like Q's, where it can reach them
};

/// The kernel of a shape that was chosen for these features, for bf16 or f16.
const Kernel& kernel_of(Shape shape, DType dtype, const Features& features);
/// The one that pulls keys and values, with whole results; of a pulling_shape().
const Kernel& pulling_kernel_of(Shape shape, DType dtype);
/// The one whose heads share blocks, with whole results; of a shape that may_share().
const Kernel& sharing_kernel_of(Shape shape, DType dtype);

}  // namespace longspan::hopper
