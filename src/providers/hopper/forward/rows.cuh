// Accumulators of a warpgroup: a thread holds two rows, eight apart; of every eight columns two
// neighbours. d[4 i + e] and d[4 i + 2 + e] are column 8 i + 2 (lane % 4) + e of the upper and the
// lower row.
#pragma once

#include <cstdint>

#include "providers/hopper/ptx/arithmetic.cuh"

namespace longspan::hopper {

struct Rows {
  float upper, lower;
};

constexpr float kInfinity = __builtin_huge_valf();
constexpr float kNoKey = -1e30f;  // reference of a row that has seen no key
constexpr float kLn2 = 0.69314718056f;

__device__ __forceinline__ bool rarely(bool x) { return __builtin_expect(x, 0); }

template <int R>
__device__ __forceinline__ void scale_rows(float (&o)[R], Rows factor) {
#pragma unroll
  for (int i = 0; i < R / 4; ++i) {
    o[4 * i] *= factor.upper;
    o[4 * i + 1] *= factor.upper;
    o[4 * i + 2] *= factor.lower;
    o[4 * i + 3] *= factor.lower;
  }
}

/// Largest values of this thread's columns. R is a multiple of 8.
template <int R>
__device__ __forceinline__ Rows thread_max(const float (&s)[R]) {
  constexpr int kHalf = R / 8 * 4;
  float a = s[0], b = s[2], c = s[kHalf], d = s[kHalf + 2];
#pragma unroll
  for (int i = 0; i < R / 8; ++i) {
    a = fmaxf(a, fmaxf(s[4 * i], s[4 * i + 1]));
    b = fmaxf(b, fmaxf(s[4 * i + 2], s[4 * i + 3]));
    c = fmaxf(c, fmaxf(s[4 * i + kHalf], s[4 * i + kHalf + 1]));
    d = fmaxf(d, fmaxf(s[4 * i + kHalf + 2], s[4 * i + kHalf + 3]));
  }
  return {fmaxf(a, c), fmaxf(b, d)};
}

// Over the four threads that share a row.
__device__ __forceinline__ Rows quad_max(Rows x) {
  x.upper = fmaxf(x.upper, __shfl_xor_sync(~0u, x.upper, 1));
  x.lower = fmaxf(x.lower, __shfl_xor_sync(~0u, x.lower, 1));
  x.upper = fmaxf(x.upper, __shfl_xor_sync(~0u, x.upper, 2));
  x.lower = fmaxf(x.lower, __shfl_xor_sync(~0u, x.lower, 2));
  return x;
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
__device__ __forceinline__ Rows quad_sum(Rows x) { return {quad_sum(x.upper), quad_sum(x.lower)}; }

// Hide columns: they become `hidden`. Bounds are relative to this thread's first column, 2 (lane %
// 4).
template <int R>
__device__ __forceinline__ void hide_behind(float (&s)[R], int last_upper, int last_lower,
                                            float hidden = -kInfinity) {
#pragma unroll
  for (int i = 0; i < R / 4; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * i + e > last_upper) s[4 * i + e] = hidden;
      if (8 * i + e > last_lower) s[4 * i + 2 + e] = hidden;
    }
}
template <int R>
__device__ __forceinline__ void hide_before(float (&s)[R], int first_upper, int first_lower,
                                            float hidden = -kInfinity) {
#pragma unroll
  for (int i = 0; i < R / 4; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (8 * i + e < first_upper) s[4 * i + e] = hidden;
      if (8 * i + e < first_lower) s[4 * i + 2 + e] = hidden;
    }
}

/// How many of a thread's columns of a row lie before column `end`, which is relative to its first
/// one. Below 0 where `end` is; in the row below, two more.
__device__ __forceinline__ int columns_before(int end) { return (end >> 3) * 2 + min(end & 7, 2); }

/// Hides columns of both rows but those numbered [first, end), as columns_before() counts.
// NOTE: ptxas makes one predicate each of 7 bits at a time (R2P) in this order of columns only.
template <int R>
__device__ __forceinline__ void hide_but(float (&s)[R], int first, int end_upper, int end_lower) {
  static_assert(R / 2 <= 32);
  const uint32_t upper = bits(max(first, 0), max(end_upper - max(first, 0), 0));
  const uint32_t lower = bits(max(first + 2, 0), max(end_lower - max(first + 2, 0), 0));
#pragma unroll
  for (int i = 0; i < R / 2; ++i)
    if (!(upper & 1u << i)) s[i / 2 * 4 + i % 2] = -kInfinity;
#pragma unroll
  for (int i = 0; i < R / 2; ++i)
    if (!(lower & 1u << i)) s[i / 2 * 4 + 2 + i % 2] = -kInfinity;
}

/// Four neighbouring columns of sixteen of a row, of which a thread holds pairs of the `first`
/// eight and of the `second`: in an even thread columns 2 (lane % 4) on of the former, in an `odd`
/// one 2 (lane % 4 - 1) on of the latter. Called by whole warps.
__device__ __forceinline__ float4 four_columns(float2 first, float2 second, bool odd) {
  const float x = __shfl_xor_sync(~0u, odd ? first.x : second.x, 1);
  const float y = __shfl_xor_sync(~0u, odd ? first.y : second.y, 1);
  return odd ? float4{x, y, second.x, second.y} : float4{first.x, first.y, x, y};
}

/// Word e of thread l of a quad and word l of thread e change places.
__device__ __forceinline__ void transpose_quad(uint32_t (&word)[4], int lane) {
  const bool odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(~0u, odd ? word[i] : word[i + 1], 1);
    if (odd) {
      word[i] = other;
    } else {
      word[i + 1] = other;
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = __shfl_xor_sync(~0u, high ? word[i] : word[i + 2], 2);
    if (high) {
      word[i] = other;
    } else {
      word[i + 2] = other;
    }
  }
}

}  // namespace longspan::hopper
