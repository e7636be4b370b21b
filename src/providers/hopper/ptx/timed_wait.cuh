// Waits on barriers in shared memory that are bounded by time.
#pragma once

#include <cstdint>

#include "providers/hopper/ptx/mbarrier.cuh"

namespace longspan::hopper {

/// Counts 2^32 clocks, about two seconds.
__device__ __forceinline__ uint32_t clock_high() {
  uint32_t high;
  asm volatile("mov.u32 %0, %%clock_hi;" : "=r"(high));
  return high;
}

/// Waits until the phase of `parity` is complete. A wait that takes seconds traps.
// NOTE: "unroll 1": as in mbarrier_wait.
__device__ __forceinline__ void timed_wait(uint32_t bar, uint32_t parity) {
  if (mbarrier_test(bar, parity)) return;
  const uint32_t start = clock_high();
#pragma unroll 1
  while (clock_high() - start < 2) {
    if (mbarrier_test(bar, parity)) return;
  }
  asm volatile("trap;");
}

}  // namespace longspan::hopper
