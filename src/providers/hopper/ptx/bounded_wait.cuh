// Waits on barriers in shared memory that end within seconds.
#pragma once

#include <cstdint>

#include "providers/hopper/ptx/mbarrier.cuh"

namespace longspan::hopper {

/// Waits until the phase of `parity` is complete. A wait of seconds traps: polls take microseconds.
// NOTE: a bound by the clock instead of a count makes ptxas spill in kernels that are full of
// accumulators. "unroll 1": as in mbarrier_wait.
__device__ __forceinline__ void bounded_wait(uint32_t bar, uint32_t parity) {
  if (mbarrier_test(bar, parity)) return;
#pragma unroll 1
  for (int i = 0; i < 1 << 19; ++i) {
    if (mbarrier_test(bar, parity)) return;
  }
  asm volatile("trap;");
}

}  // namespace longspan::hopper
