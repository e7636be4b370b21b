// Four floats that lie together in device memory, where a condition holds: without a branch.
#pragma once

#include <cstdint>

namespace longspan::hopper {

/// The four floats at `from`, or zeros where `exists` does not hold. WIDE: aligned to 16 bytes.
template <bool WIDE>
__device__ __forceinline__ float4 load_four_if(bool exists, const float* from) {
  float4 v{0, 0, 0, 0};
  if constexpr (WIDE) {
    asm volatile(
        "{.reg .pred p;\n setp.ne.b32 p, %5, 0;\n @p ld.global.v4.f32 {%0, %1, %2, %3}, [%4];}"
        : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w)
        : "l"(from), "r"(static_cast<int>(exists))
        : "memory");
  } else {
    asm volatile(
        "{.reg .pred p;\n setp.ne.b32 p, %5, 0;\n @p ld.global.f32 %0, [%4];\n"
        " @p ld.global.f32 %1, [%4 + 4];\n @p ld.global.f32 %2, [%4 + 8];\n"
        " @p ld.global.f32 %3, [%4 + 12];}"
        : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w)
        : "l"(from), "r"(static_cast<int>(exists))
        : "memory");
  }
  return v;
}
template <bool WIDE>
__device__ __forceinline__ void store_four_if(bool exists, float* to, float4 v) {
  if constexpr (WIDE) {
    asm volatile(
        "{.reg .pred p;\n setp.ne.b32 p, %5, 0;\n @p st.global.v4.f32 [%4], {%0, %1, %2, %3};}" ::
            "f"(v.x),
        "f"(v.y), "f"(v.z), "f"(v.w), "l"(to), "r"(static_cast<int>(exists))
        : "memory");
  } else {
    asm volatile(
        "{.reg .pred p;\n setp.ne.b32 p, %5, 0;\n @p st.global.f32 [%4], %0;\n"
        " @p st.global.f32 [%4 + 4], %1;\n @p st.global.f32 [%4 + 8], %2;\n"
        " @p st.global.f32 [%4 + 12], %3;}" ::"f"(v.x),
        "f"(v.y), "f"(v.z), "f"(v.w), "l"(to), "r"(static_cast<int>(exists))
        : "memory");
  }
}

}  // namespace longspan::hopper
