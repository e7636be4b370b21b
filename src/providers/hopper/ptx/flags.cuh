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
/// Until the word is at least `value`. Who writes it in the end is the host's watch.
template <Scope SCOPE>
__device__ __forceinline__ void wait_word(const uint32_t* word, uint32_t value) {
#pragma unroll 1
  while (load_acquire<SCOPE>(word) < value) {
  }
}
/// For words of this device: at the scope of the system a release behind every unit cost 5 % of a
/// launch of 4096 keys.
__device__ __forceinline__ void add_release(uint32_t* word) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(word) : "memory");
}
/// The word before.
__device__ __forceinline__ uint32_t add_and_acquire(uint32_t* word) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(word)
               : "memory");
  return before;
}
__device__ __forceinline__ void store_release_system(uint32_t* word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
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
/// Orders accesses by TMA and bulk copies with the ordinary ones of this thread.
__device__ __forceinline__ void fence_proxy() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace longspan::hopper
