// Score terms of a thread's pairs, as forward and backward compute them: soft cap, ALiBi, dropout.
#pragma once

#include "base/philox.h"
#include "providers/hopper/forward/parameters.h"
#include "providers/hopper/forward/rows.cuh"
#include "providers/hopper/ptx/arithmetic.cuh"

namespace longspan::hopper {

/// What products of queries and keys are scaled by.
struct ProductScales {
  float log2;  // to scores in units of log2
  float rate;  // Terms::cap_rate
};

/// The capped score, in units of log2, of a product of query and key. WIDE: Terms::wide_cap.
// NOTE: tanh.approx is wrong by 5e-4, which a cap of 50 makes 0.02 in the score. 1 - 2/(1 + e^2x)
// is wrong by 3e-7 at most; where the cap makes that too much, a series serves scores near 0.
template <bool WIDE>
__device__ __forceinline__ float capped(const Terms& t, float product, const ProductScales& by) {
  constexpr float kHalfLn2 = kLn2 / 2, kSquare = kHalfLn2 * kHalfLn2, kNearZero = 0.25f;
  const float x = product * by.rate;
  float score = fmaf(-2 * t.cap_log2, reciprocal_fast(1 + exp2_fast(x)), t.cap_log2);
  if constexpr (WIDE) {
    const float square = x * x;
    const float series = fmaf(fmaf(2 * kSquare / 15, square, -1.0f / 3) * kSquare, square, 1);
    if (fabsf(x) < kNearZero) score = product * by.log2 * series;
  }
  return score;
}

/// What ALiBi adds to the pairs of a thread's two rows with the keys from its first column on.
struct Distances {
  float slope;  // in units of log2
  float upper, lower, stride;

  __device__ __forceinline__ float added(float score, float distance, float column) const {
    return fmaf(slope, fabsf(fmaf(-stride, column, distance)), score);
  }
};

/// Of query `query`, and the one eight further, with key `key` of a tile.
__device__ __forceinline__ Distances distances_of(const Terms& t, const Tokens& at, int head,
                                                  int query, int key) {
  const float slope = -(1 / kLn2) * t.slopes[head * t.slope_stride];
  const int64_t distance = at.distance + int64_t{query} * at.q_stride - int64_t{key} * at.k_stride;
  return {.slope = slope,
          .upper = static_cast<float>(distance),
          .lower = static_cast<float>(distance + 8 * int64_t{at.q_stride}),
          .stride = static_cast<float>(at.k_stride)};
}

/// Draws which pairs dropout keeps, of a thread's two rows, columns two of every eight.
class PairDraw {
 public:
  /// As in distances_of().
  __device__ __forceinline__ PairDraw(const Terms& t, const Tokens& at, int head, int query,
                                      int key)
      : last_dropped_(t.last_dropped),
        key0_(t.key == nullptr ? t.key0 : t.key[0]),
        key1_(t.key == nullptr ? t.key1 : t.key[1]),
        sequence_(at.sequence),
        head_(t.head_begin + head),
        upper_(at.q_begin + query * static_cast<uint32_t>(at.q_stride)),
        lower_(upper_ + 8 * static_cast<uint32_t>(at.q_stride)),
        token_(at.k_begin + key * static_cast<uint32_t>(at.k_stride)),
        stride_(at.k_stride) {}

  /// Of the next `groups` times eight keys, up to 8: bits 2 c and 2 c + 1 are whether column c of
  /// both rows stays.
  __device__ __forceinline__ uint32_t next(int groups) {
    uint32_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < 2 * groups; ++i) {
      bits = bits >> 2 | keeps(upper_) << 30 | keeps(lower_) << 31;
      token_ += i % 2 == 0 ? stride_ : 7 * stride_;
    }
    return bits >> (32 - 4 * groups);
  }

 private:
  __device__ __forceinline__ uint32_t keeps(uint32_t query) const {
    return philox4x32(PhiloxWords{sequence_, head_, query, token_}, key0_, key1_).x > last_dropped_;
  }

  uint32_t last_dropped_, key0_, key1_;
  uint32_t sequence_, head_;
  uint32_t upper_, lower_, token_, stride_;
};

/// The bits of a packed word of P that stay: number `n`, of those in the order of accumulators.
__device__ __forceinline__ uint32_t kept_bits(const uint32_t* kept, int n) {
  const uint32_t bits = kept[n / 16] >> (n % 16 / 2 * 4 + n % 2);
  return (bits & 1 ? 0xFFFFu : 0) | (bits & 4 ? 0xFFFF0000u : 0);
}

}  // namespace longspan::hopper
