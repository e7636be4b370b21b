// Stores that only some kernels need.
#pragma once

#include <cstdint>

namespace longspan::hopper {

/// Four 8 x 8 matrices of 16-bit elements to shared memory, transposed: element i of row r of a
/// matrix goes to place r of its row i, whose address lane i gives.
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t a, uint32_t b,
                                                 uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// Whoever of the device reads `value` sees what this thread did before, and what it has seen of
/// others.
__device__ __forceinline__ void store_release(uint32_t* word, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

}  // namespace longspan::hopper
