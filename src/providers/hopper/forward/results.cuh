// From accumulators to O and LSE in memory.
#pragma once

#include "providers/hopper/forward/rows.cuh"
#include "providers/hopper/forward/tiles.cuh"
#include "providers/hopper/ptx/arithmetic.cuh"
#include "providers/hopper/ptx/global.cuh"
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

/// The LSE that a row has, in units of log2.
__device__ __forceinline__ float carried_lse(const Parameters& p, const Place& at) {
  return at.exists ? *p.lse.at<float>(at.row, at.head) * (1 / kLn2) : -kInfinity;
}

/// Writes the LSE of a row, that of both parts with C::kMerges, and returns the weights of O. `max`
/// and `before`, the LSE that is there, count in units of log2, `sum` is that of the whole row.
template <class C>
__device__ __forceinline__ Weight finish_row(const Parameters& p, const Place& at, float max,
                                             float sum, [[maybe_unused]] float before) {
  Weight w = {sum > 0 ? (C::kTerms ? p.terms.keep_factor : 1.0f) / sum : 0, 0};
  float lse = max + log2f(sum);
  float* const place = at.exists ? p.lse.at<float>(at.row, at.head) : nullptr;
  bool writes = at.exists && (threadIdx.x & 3) == 0;
  if constexpr (C::kMerges) {
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

/// The same for both rows of a thread. Called by whole warps.
template <class C>
__device__ __forceinline__ void finish_rows(const Parameters& p, const Place (&at)[2], Rows max,
                                            Rows sum, Weight (&w)[2]) {
  Rows before = {0, 0};
  if constexpr (C::kMerges) {
    before = {carried_lse(p, at[0]), carried_lse(p, at[1])};
    __syncwarp();  // all threads of the rows have read what one of them writes
  }
  w[0] = finish_row<C>(p, at[0], max.upper, sum.upper, before.upper);
  w[1] = finish_row<C>(p, at[1], max.lower, sum.lower, before.lower);
}

/// The O that is there of a thread's two rows, from `first_column` on, by fours of columns as
/// four_columns() makes them, those of the upper row first.
template <bool WIDE, int R>
class CarriedRows {
 public:
  static constexpr int kFours = R / 4;

  __device__ __forceinline__ CarriedRows(const Parameters& p, const Place (&at)[2],
                                         int first_column) {
    const int lane = static_cast<int>(opaque(threadIdx.x)) & 3;
    odd_ = lane & 1;
    const int column = first_column + (lane & 1) * 8 + (lane & 2) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      out_[half] = p.out.at<float>(at[half].row, at[half].head) + column;
      columns_[half] = at[half].exists ? p.out.dim - column : 0;
    }
  }

  /// Begins to load fours from number `first` on.
  template <int N>
  __device__ __forceinline__ void load(int first, float4 (&carried)[N]) const {
#pragma unroll
    for (int i = 0; i < N && first + i < kFours; ++i) {
      const int half = half_of(first + i), x = column_of(first + i);
      carried[i] = load_four_if<WIDE>(x < columns_[half], out_[half] + x);
    }
  }

  /// Writes mine * o + old * carried in their places. Called by whole warps.
  // NOTE: accumulators are multiplied first: where they are shuffled themselves, ptxas spills.
  template <int N>
  __device__ __forceinline__ void merge(int first, const float4 (&carried)[N], const float (&o)[R],
                                        const Weight (&w)[2]) const {
#pragma unroll
    for (int i = 0; i < N && first + i < kFours; ++i) {
      const int half = half_of(first + i), x = column_of(first + i), at = x / 2 + 2 * half;
      const float mine = w[half].mine, old = w[half].old;
      const float4 four = four_columns({mine * o[at], mine * o[at + 1]},
                                       {mine * o[at + 4], mine * o[at + 5]}, odd_);
      const float4 c = carried[i];
      store_four_if<WIDE>(
          x < columns_[half], out_[half] + x,
          {four.x + old * c.x, four.y + old * c.y, four.z + old * c.z, four.w + old * c.w});
    }
  }

 private:
  static_assert(R % 8 == 0);
  static __device__ __forceinline__ int half_of(int four) { return four / (kFours / 2); }
  static __device__ __forceinline__ int column_of(int four) { return four % (kFours / 2) * 16; }

  bool odd_;
  float* out_[2];
  int columns_[2];  // from there on
};

/// O of both rows = mine * o + old * O. Called by whole warps; `weigh` fills in the weights while
/// the first loads are under way.
template <bool WIDE, int BATCH, int R, class Weigh>
__device__ __forceinline__ void merge_rows(const Parameters& p, const float (&o)[R],
                                           const Place (&at)[2], int first_column,
                                           const Weigh& weigh) {
  const CarriedRows<WIDE, R> rows(p, at, first_column);
  float4 carried[2][BATCH];
  rows.load(0, carried[0]);
  rows.load(BATCH, carried[1]);
  Weight w[2];
  weigh(w);
#pragma unroll
  for (int i = 0; i * BATCH < rows.kFours; ++i) {
    // NOTE: else ptxas moves loads behind stores, and memory is waited for a few loads at a time.
    __syncwarp();
    rows.merge(i * BATCH, carried[i & 1], o, w);
    rows.load((i + 2) * BATCH, carried[i & 1]);
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
/// `weigh(w)` fills in the weights of both rows.
template <class C, int R, class Weigh>
__device__ __forceinline__ void write_part(const Parameters& p, const float (&o)[R],
                                           const Place (&at)[2], int first_column,
                                           const Weigh& weigh) {
  if constexpr (!C::kMerges) {
    Weight w[2];
    weigh(w);
    store_rows<typename C::Element>(p, o, at, w, first_column);
  } else if (p.wide) {
    merge_rows<true, C::kCarryBatch>(p, o, at, first_column, weigh);
  } else {
    merge_rows<false, C::kCarryBatch>(p, o, at, first_column, weigh);
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
template <class C>
__device__ __forceinline__ void copy_staged(const Parameters& p, uint32_t base, int row, int head,
                                            int rows, int lane) {
#pragma unroll 1
  for (int r = lane / 8; r < (C::kShares ? 64 : rows); r += 4) {
    int query = r, h = head;
    if constexpr (C::kShares) {
      const int queries_log2 = 6 - heads_log2<C>(p);
      query &= (1 << queries_log2) - 1;
      h += r >> queries_log2;
      if (query >= rows) continue;
    }
    uint16_t* const out = p.out.at<uint16_t>(row + query, h);
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
