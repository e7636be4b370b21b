// From accumulators to dQ, dK and dV in memory.
#pragma once

#include "providers/hopper/backward/gradients_shared.cuh"
#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/forward/results.cuh"

namespace longspan::hopper {

/// A thread's two rows of a gradient, eight apart, and its tile's first column.
struct GradientPlace {
  int row, head, column;
  bool exists[2];
};

template <bool WIDE>
__device__ __forceinline__ float2 load_pair(const float* from) {
  if constexpr (WIDE) return *reinterpret_cast<const float2*>(from);
  return {from[0], from[1]};
}
template <bool WIDE>
__device__ __forceinline__ void store_pair(float* to, float2 pair) {
  if constexpr (WIDE) {
    *reinterpret_cast<float2*>(to) = pair;
  } else {
    to[0] = pair.x;
    to[1] = pair.y;
  }
}

/// d * scale, plus the FP32 sums that are there.
// NOTE: sums are loaded in batches: one by one, each would wait for memory.
template <bool WIDE, int HALF, int R>
__device__ __forceinline__ void add_sums(const GradientRows& g, float (&d)[R], const float* from,
                                         int columns) {
  constexpr int kBatch = R % 64 == 0 ? 16 : 12;
  static_assert(R / 4 % kBatch == 0);
#pragma unroll
  for (int first = 0; first < R / 4; first += kBatch) {
    float2 prior[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      prior[i] = {0, 0};
      if (8 * (first + i) < columns) prior[i] = load_pair<WIDE>(from + 8 * (first + i));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int x = 4 * (first + i) + 2 * HALF;
      d[x] = fmaf(d[x], g.scale, prior[i].x);
      d[x + 1] = fmaf(d[x + 1], g.scale, prior[i].y);
    }
  }
}

template <bool WIDE, int HALF, int R>
__device__ __forceinline__ void store_sums(const float (&d)[R], float* to, int columns) {
#pragma unroll
  for (int i = 0; i < R / 4; ++i) {
    const int x = 4 * i + 2 * HALF;
    if (8 * i < columns) store_pair<WIDE>(to + 8 * i, {d[x], d[x + 1]});
  }
}

template <class T, int HALF, int R>
__device__ __forceinline__ void store_result(const GradientRows& g, const float (&d)[R],
                                             const GradientPlace& at) {
  const int lane = threadIdx.x & 31;
  uint16_t* const out =
      at.exists[HALF] ? g.result.at<uint16_t>(at.row + 8 * HALF, at.head) + at.column : nullptr;
#pragma unroll
  for (int i = 0; i < R / 16; ++i) {
    uint32_t word[4];  // of four times eight columns; thread l of a quad gets the l-th eight
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int x = 4 * (4 * i + e) + 2 * HALF;
      word[e] = pack<T>(d[x], d[x + 1]);
    }
    transpose_quad(word, lane);
    const int column = 32 * i + (lane & 3) * 8;
    if (!at.exists[HALF] || at.column + column >= g.result.dim) continue;
    store_octet(out + column, {word[0], word[1], word[2], word[3]}, g.wide_result);
  }
}

template <class T, bool WIDE, int HALF, int R>
__device__ __forceinline__ void write_row(const GradientRows& g, float (&d)[R],
                                          const GradientPlace& at, bool adds, bool ends) {
  const int columns = g.sums.dim - at.column;
  float* const sums = g.sums.at<float>(at.row + 8 * HALF - g.first_row, at.head - g.first_head) +
                      at.column + (threadIdx.x & 3) * 2;
  if (adds && at.exists[HALF]) {
    add_sums<WIDE, HALF>(g, d, sums, columns);
  } else {
#pragma unroll
    for (int i = 0; i < R / 4; ++i)
      d[4 * i + 2 * HALF] *= g.scale, d[4 * i + 2 * HALF + 1] *= g.scale;
  }
  if (ends) {
    store_result<T, HALF>(g, d, at);
  } else if (at.exists[HALF]) {
    store_sums<WIDE, HALF>(d, sums, columns);
  }
}

template <class T, int R>
__device__ __forceinline__ void write_gradient(const GradientRows& g, float (&d)[R],
                                               const GradientPlace& at, bool adds, bool ends) {
  if (g.wide_sums) {
    write_row<T, true, 0>(g, d, at, adds, ends);
    write_row<T, true, 1>(g, d, at, adds, ends);
  } else {
    write_row<T, false, 0>(g, d, at, adds, ends);
    write_row<T, false, 1>(g, d, at, adds, ends);
  }
}

}  // namespace longspan::hopper
