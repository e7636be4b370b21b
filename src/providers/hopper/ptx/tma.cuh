// Tiles between global and shared memory by tensor maps.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace longspan::hopper {

/// Element coordinates of a box, innermost first.
struct Coordinates {
  int x = 0, row = 0, block = 0, head = 0, batch = 0;
};

/// `bar` counts the bytes of the box, zeros outside the tensor included.
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, uint32_t bar,
                                         const Coordinates& c) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
      "l"(map), "r"(bar), "r"(c.x), "r"(c.row), "r"(c.block), "r"(c.head), "r"(c.batch)
      : "memory");
}
/// What lies outside the tensor is not written.
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t from,
                                          const Coordinates& c) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group "
      "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
      "r"(from), "r"(c.x), "r"(c.row), "r"(c.block), "r"(c.head), "r"(c.batch)
      : "memory");
}
/// `bytes` that lie together, a multiple of 16; both addresses are aligned to 16 bytes.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bar,
                                          uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(bar)
      : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
/// Brings `bytes` that lie together, a multiple of 16, to L2; the address is aligned to 16 bytes.
__device__ __forceinline__ void bulk_prefetch(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
/// Brings the line of an address to L2.
__device__ __forceinline__ void prefetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Until this thread's stores have read shared memory.
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Until its stores but the last group have.
__device__ __forceinline__ void tma_store_wait_read_but_one() {
  asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}
/// Until this thread's stores are complete.
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/// Until this thread's stores but the last group are complete.
__device__ __forceinline__ void tma_store_wait_but_one() {
  asm volatile("cp.async.bulk.wait_group 1;" ::: "memory");
}
/// Makes this thread's ordinary writes of shared memory visible to wgmma and TMA; a barrier must
/// follow.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace longspan::hopper
