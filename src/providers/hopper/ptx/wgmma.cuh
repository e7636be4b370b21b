// Products of a warpgroup: operand descriptors, order of accumulators, registers of warpgroups.
#pragma once

#include <cstdint>

#include "wgmma_instructions.cuh"  // generate_wgmma.py

namespace longspan::hopper {

/// Before the first product behind a barrier or a write to operand registers.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most `kInFlight` committed groups are open.
template <int kInFlight>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kInFlight) : "memory");
}
/// No instruction: keeps accumulators from being read before the wait above it.
template <int R>
__device__ __forceinline__ void accumulators_ready(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
/// No instruction: the values are not needed any more. The "+f" of a product that overwrites them
/// would else keep them alive.
template <int R>
__device__ __forceinline__ void accumulators_dead(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "=f"(d[i]));
}

// Operands are tiles of 128-byte swizzled rows, aligned to 1024 bytes. The low word of a descriptor
// counts units of 16 bytes, so that a step through a tile is one 32-bit addition.
//   K-major:  a row holds 64 k of one index of M or N; the next 16 k lie kStepK further.
//   MN-major: a row holds 64 indices of one k; the next 16 k lie kStepMn further.
constexpr int kStepK = 2, kStepMn = 128;

__device__ __forceinline__ uint32_t low_k_major(uint32_t address) {
  return ((address & 0x3FFFF) >> 4) | (1u << 16);
}
/// `block_bytes`: from 64 indices of M or N to the next 64.
__device__ __forceinline__ uint32_t low_mn_major(uint32_t address, uint32_t block_bytes) {
  return ((address & 0x3FFFF) >> 4) | ((block_bytes >> 4) << 16);
}
/// High word: 1024 bytes from 8 rows to the next 8, 128-byte swizzle.
__device__ __forceinline__ uint64_t descriptor(uint32_t low) {
  uint64_t result;
  asm("mov.b64 %0, {%1, %2};" : "=l"(result) : "r"(low), "r"((1024u >> 4) | (1u << 30)));
  return result;
}
/// Keeps the compiler from computing everything that depends on `x` ahead of time, which would fill
/// the registers with descriptors and addresses.
__device__ __forceinline__ uint32_t opaque(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

template <int R>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R));
}
template <int R>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R));
}

/// Four 8 x 8 matrices of 16-bit elements to shared memory; lane l gives the address of row l.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

}  // namespace longspan::hopper
