// Words of global memory through which kernels, of one device or several, order what they read.
#pragma once

#include <cstdint>

namespace longspan::hopper {

enum class Scope { kDevice, kSystem };

template <Scope SCOPE>
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* word) {
  uint32_t value;
  if constexpr (SCOPE == Scope::kSystem) {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  } else {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  }
  return value;
}
/// Until the word is positive. Who writes it in the end is the host's watch.
__device__ __forceinline__ void wait_word_of_system(const uint32_t* word) {
#pragma unroll 1
  while (load_acquire<Scope::kSystem>(word) == 0) {
  }
}
/// Until these bits of the word, of this device, are set. Returns all that are.
__device__ __forceinline__ uint32_t wait_bits(const uint32_t* word, uint32_t bits) {
  uint32_t set;
#pragma unroll 1
  do {
    set = load_acquire<Scope::kDevice>(word);
  } while ((bits & ~set) != 0);
  return set;
}
/// For words of this device.
__device__ __forceinline__ void set_release(uint32_t* word, uint32_t bits) {
  asm volatile("red.release.gpu.global.or.b32 [%0], %1;" ::"l"(word), "r"(bits) : "memory");
}
/// Whether the word, of this device, has been come to `count` times, now the last: what was done
/// before those is then seen here, and the word is 0 as before the first.
// NOTE: at the scope of the system, behind every unit, it cost 5 % of a launch of 4096 keys.
__device__ __forceinline__ bool last_of(uint32_t count, uint32_t* word) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(count - 1)
               : "memory");
  return before == count - 1;
}
__device__ __forceinline__ void store_for_system(uint32_t* word, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
/// Who sees a later store_for_system sees what this thread did and saw before.
__device__ __forceinline__ void release_to_system() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}
/// 16 bytes that nobody reads again.
__device__ __forceinline__ uint4 load_once(const char* from) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from)
               : "memory");
  return x;
}
/// Orders accesses of global memory by TMA and bulk copies with the ordinary ones of this thread.
__device__ __forceinline__ void fence_proxy() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace longspan::hopper
