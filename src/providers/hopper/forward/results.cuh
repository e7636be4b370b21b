// From accumulators to O and LSE in memory.
#pragma once

#include "providers/hopper/forward/parameters.h"
#include "providers/hopper/forward/rows.cuh"
#include "providers/hopper/ptx/arithmetic.cuh"
#include "providers/hopper/ptx/tma.cuh"
#include "providers/hopper/ptx/wgmma.cuh"

namespace longspan::hopper {

/// Where a thread's rows lie in O and LSE; those behind the tile's last query do not exist.
struct Place {
  int row, head;
  bool exists;
};

/// Factors of a row: of what was computed, and of the O that is there.
struct Weight {
  float mine, old;
};

/// Writes the LSE of a row, that of both parts with C::kMerges, and returns the weights of O. `max`
/// counts in units of log2, `sum` is that of the whole row. Called by whole warps.
template <class C>
__device__ __forceinline__ Weight finish_row(const Parameters& p, const Place& at, float max,
                                             float sum) {
  Weight w = {sum > 0 ? (C::kTerms ? p.terms.keep_factor : 1.0f) / sum : 0, 0};
  float lse = max + log2f(sum);
  float* const place = at.exists ? p.lse.at<float>(at.row, at.head) : nullptr;
  bool writes = at.exists && (threadIdx.x & 3) == 0;
  if constexpr (C::kMerges) {
    const float before = at.exists ? *place * (1 / kLn2) : -kInfinity;
    __syncwarp();  // all threads of the row have read what one of them writes
    const float top = fmaxf(fmaxf(before, lse), kNoKey);
    const float old = exp2_fast(before - top), mine = exp2_fast(lse - top);
    const float part = old + mine > 0 ? 1 / (old + mine) : 0;
    w = {w.mine * mine * part, old * part};
    lse = top + log2f(old + mine);
    writes = writes && sum != 0;  // what no key was added to keeps its bits
  }
  if (writes) *place = lse * kLn2;
  return w;
}

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

/// O of a row = mine * accumulators + old * O. HALF: 0 for the upper row, 1 for the lower one.
// NOTE: carried values are loaded in batches: the compiler keeps each load behind the store before
// it, and one by one they cost the kernel 12 % instead of 3 %.
template <bool WIDE, int HALF, int R>
__device__ __forceinline__ void merge_row(const Parameters& p, const float (&o)[R], const Place& at,
                                          Weight w, int first_column) {
  if (!at.exists) return;
  constexpr int kBatch = R / 4 > 16 ? 16 : R / 4;
  static_assert(R / 4 % kBatch == 0 || R / 4 < 32);
  float* const out = p.out.at<float>(at.row, at.head) + first_column + (threadIdx.x & 3) * 2;
  const int columns = p.out.dim - first_column;
#pragma unroll
  for (int first = 0; first < R / 4; first += kBatch) {
    float2 prior[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      prior[i] = {0, 0};
      if (first + i < R / 4 && 8 * (first + i) < columns) {
        prior[i] = load_pair<WIDE>(out + 8 * (first + i));
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= R / 4 || 8 * (first + i) >= columns) continue;
      const int x = 4 * (first + i) + 2 * HALF;
      store_pair<WIDE>(out + 8 * (first + i), {w.mine * o[x] + w.old * prior[i].x,
                                               w.mine * o[x + 1] + w.old * prior[i].y});
    }
  }
}
template <int R>
__device__ __forceinline__ void merge_rows(const Parameters& p, const float (&o)[R],
                                           const Place (&at)[2], const Weight (&w)[2],
                                           int first_column) {
  if (p.wide) {
    merge_row<true, 0>(p, o, at[0], w[0], first_column);
    merge_row<true, 1>(p, o, at[1], w[1], first_column);
  } else {
    merge_row<false, 0>(p, o, at[0], w[0], first_column);
    merge_row<false, 1>(p, o, at[1], w[1], first_column);
  }
}

/// Eight 16-bit elements.
__device__ __forceinline__ void store_octet(uint16_t* to, uint4 octet, bool wide) {
  if (wide) {
    __stwb(reinterpret_cast<uint4*>(to), octet);  // NOTE: an assignment may be split
    return;
  }
  const uint32_t words[4] = {octet.x, octet.y, octet.z, octet.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = static_cast<uint16_t>(words[i]);
    to[2 * i + 1] = static_cast<uint16_t>(words[i] >> 16);
  }
}

/// Accumulators, normalised and rounded to T, from registers to memory.
template <class T, int R>
__device__ __forceinline__ void store_rows(const Parameters& p, const float (&o)[R],
                                           const Place (&at)[2], const Weight (&w)[2],
                                           int first_column) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint16_t* const out =
        at[half].exists ? p.out.at<uint16_t>(at[half].row, at[half].head) : nullptr;
#pragma unroll
    for (int i = 0; i < R / 16; ++i) {
      uint32_t word[4];  // of four times eight columns; thread l of a quad gets the l-th eight
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int x = 4 * (4 * i + e) + 2 * half;
        word[e] = pack<T>(o[x] * w[half].mine, o[x + 1] * w[half].mine);
      }
      transpose_quad(word, lane);
      const int column = first_column + 32 * i + (lane & 3) * 8;
      if (!at[half].exists || column >= p.out.dim) continue;
      store_octet(out + column, {word[0], word[1], word[2], word[3]}, p.wide);
    }
  }
}

/// Accumulators to memory: merged into what is there, or normalised and rounded to C::Element.
template <class C, int R>
__device__ __forceinline__ void write_part(const Parameters& p, const float (&o)[R],
                                           const Place (&at)[2], const Weight (&w)[2],
                                           int first_column) {
  if constexpr (C::kMerges) {
    merge_rows(p, o, at, w, first_column);
  } else {
    store_rows<typename C::Element>(p, o, at, w, first_column);
  }
}

/// The same to a Q buffer of 64 rows, as TMA stores it; `base` is that of the warp's first row.
template <class T, int R>
__device__ __forceinline__ void stage_rows(uint32_t base, const float (&o)[R]) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < R / 8; ++i) {
    const uint32_t chunk = (2 * (i & 3) + (lane >> 4)) ^ (lane & 7);
    store_matrices(base + (lane & 15) * 128 + i / 4 * 8192 + (chunk << 4),
                   pack<T>(o[8 * i], o[8 * i + 1]), pack<T>(o[8 * i + 2], o[8 * i + 3]),
                   pack<T>(o[8 * i + 4], o[8 * i + 5]), pack<T>(o[8 * i + 6], o[8 * i + 7]));
  }
  fence_async_proxy();
}

/// `rows` staged rows of each head to memory, 16 bytes a lane of one warp.
__device__ __forceinline__ void copy_staged(const Parameters& p, uint32_t base, int row, int head,
                                            int rows, int lane) {
  const int most_log2 = 6 - p.heads_log2;
#pragma unroll 1
  for (int r = lane / 8; r < 64; r += 4) {
    const int query = r & ((1 << most_log2) - 1);
    if (query >= rows) continue;
    uint16_t* const out = p.out.at<uint16_t>(row + query, head + (r >> most_log2));
#pragma unroll 1
    for (int column = lane % 8 * 8; column < p.out.dim; column += 64) {
      const uint32_t from = base + column / 64 * 8192 + r * 128 + ((lane % 8 ^ r % 8) << 4);
      uint4 octet;
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(octet.x), "=r"(octet.y), "=r"(octet.z), "=r"(octet.w)
                   : "r"(from)
                   : "memory");
      store_octet(out + column, octet, p.wide);
    }
  }
}

}  // namespace longspan::hopper
