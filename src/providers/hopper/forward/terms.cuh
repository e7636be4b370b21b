// Score terms of one warpgroup's rows: soft cap, ALiBi, dropout, and the largest logits.
#pragma once

#include "base/philox.h"
#include "providers/hopper/forward/rows.cuh"
#include "providers/hopper/forward/tiles.cuh"
#include "providers/hopper/ptx/arithmetic.cuh"

namespace longspan::hopper {

/// Scores of kernels without terms are products, to be scaled by the softmax.
template <int KEYS, bool TERMS>
class ScoreTerms {
 public:
  __device__ __forceinline__ ScoreTerms(const Parameters& p, int) : scale_(p.scale_log2) {}
  __device__ __forceinline__ float scale() const { return scale_; }
  __device__ __forceinline__ void draw(volatile Tile&, int) {}
  template <int R>
  __device__ __forceinline__ void apply(volatile Tile&, int, float (&)[R]) const {}
  template <int R>
  __device__ __forceinline__ void observe(volatile Tile&, const float (&)[R]) {}
  template <int FIRST, int LAST, int N>
  __device__ __forceinline__ void drop(uint32_t (&)[N][4]) const {}
  __device__ __forceinline__ void leave(volatile Tile&) {}

 private:
  float scale_;
};

/// `key` is a thread's first key column of a block; its upper row is `row` of a tile.
template <int KEYS>
class ScoreTerms<KEYS, true> {
 public:
  __device__ __forceinline__ ScoreTerms(const Parameters& p, int row) : p_(p), row_(row) {}
  /// Scores are in units of log2 once the terms are applied.
  __device__ __forceinline__ float scale() const { return 1; }

  /// Draws which pairs of a block dropout keeps. Needs no scores: products run meanwhile.
  __device__ __forceinline__ void draw(volatile Tile& tile, int key) {
    if (!p_.terms.drops) return;
    const Terms& t = p_.terms;
    const Tokens& at = t.tokens[tile.tokens];
    const uint32_t key0 = t.key == nullptr ? t.key0 : t.key[0];
    const uint32_t key1 = t.key == nullptr ? t.key1 : t.key[1];
    const uint32_t head = t.head_begin + tile.head, stride = at.k_stride;
    const uint32_t q_stride = at.q_stride;
    const uint32_t upper = at.q_begin + (tile.first + row_) * q_stride;
    const uint32_t lower = upper + 8 * q_stride;
    uint32_t token = at.k_begin + key * stride;
    const auto keeps = [&](uint32_t q, uint32_t k) -> uint32_t {
      return philox4x32(PhiloxWords{at.sequence, head, q, k}, key0, key1).x > t.last_dropped;
    };
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      const int groups = word < kWords - 1 ? 8 : KEYS / 8 - 8 * (kWords - 1);
      uint32_t bits = 0;
#pragma unroll 1
      for (int i = 0; i < 2 * groups; ++i) {
        bits = bits >> 2 | keeps(upper, token) << 30 | keeps(lower, token) << 31;
        token += i % 2 == 0 ? stride : 7 * stride;
      }
      kept_[word] = bits >> (32 - 4 * groups);
    }
  }

  /// Makes scores of products of queries and keys.
  template <int R>
  __device__ __forceinline__ void apply(volatile Tile& tile, int key, float (&s)[R]) const {
    if (p_.terms.cap_log2 == 0) {
#pragma unroll
      for (int i = 0; i < R; ++i) s[i] *= p_.scale_log2;
    } else if (p_.terms.wide_cap) {
      cap<true>(s);
    } else {
      cap<false>(s);
    }
    if (p_.terms.slopes != nullptr) add_distances(tile, key, s);
  }

  /// Raises the largest logit by a block's scores, of which hidden ones are -inf.
  template <int R>
  __device__ __forceinline__ void observe(volatile Tile& tile, const float (&s)[R]) {
    if (p_.terms.max_logit == nullptr) return;
    const Rows here = thread_max(s);
    const int rows = tile.queries - tile.first - row_;  // a tile's surplus rows are others'
    if (rows > 0) peak_ = fmaxf(peak_, here.upper);
    if (rows > 8) peak_ = fmaxf(peak_, here.lower);
  }

  /// Zeroes what dropout drops of words [FIRST, LAST) of P, which is packed.
  template <int FIRST, int LAST, int N>
  __device__ __forceinline__ void drop(uint32_t (&prob)[N][4]) const {
    if (!p_.terms.drops) return;
#pragma unroll
    for (int n = 4 * FIRST; n < 4 * LAST; ++n) {
      const uint32_t bits = kept_[n / 16] >> (n % 16 / 2 * 4 + n % 2);
      prob[n / 4][n % 4] &= (bits & 1 ? 0xFFFFu : 0) | (bits & 4 ? 0xFFFF0000u : 0);
    }
  }

  /// Writes the largest logit of a tile that is done with. By whole warps.
  __device__ __forceinline__ void leave(volatile Tile& tile) {
    if (p_.terms.max_logit == nullptr) return;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      peak_ = fmaxf(peak_, __shfl_xor_sync(~0u, peak_, step));
    }
    if (peak_ > -kInfinity && threadIdx.x % 32 == 0) {
      raise(p_.terms.max_logit + tile.head * p_.terms.max_logit_stride, peak_ * kLn2);
    }
    peak_ = -kInfinity;
  }

 private:
  static constexpr int kWords = (KEYS / 8 + 7) / 8;  // of four bits for every eight keys

  // NOTE: tanh.approx is wrong by 5e-4, which a cap of 50 makes 0.02 in the score. 1 - 2/(1 + e^2x)
  // is wrong by 3e-7 at most; where the cap makes that too much, a series serves scores near 0.
  template <bool WIDE, int R>
  __device__ __forceinline__ void cap(float (&s)[R]) const {
    constexpr float kHalfLn2 = kLn2 / 2, kSquare = kHalfLn2 * kHalfLn2, kNearZero = 0.25f;
    const float cap = p_.terms.cap_log2, rate = p_.terms.cap_rate;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const float x = s[i] * rate;
      float capped = fmaf(-2 * cap, reciprocal_fast(1 + exp2_fast(x)), cap);
      if constexpr (WIDE) {
        const float square = x * x;
        const float series = fmaf(fmaf(2 * kSquare / 15, square, -1.0f / 3) * kSquare, square, 1);
        if (fabsf(x) < kNearZero) capped = s[i] * p_.scale_log2 * series;
      }
      s[i] = capped;
    }
  }

  template <int R>
  __device__ __forceinline__ void add_distances(volatile Tile& tile, int key, float (&s)[R]) const {
    const Tokens& at = p_.terms.tokens[tile.tokens];
    const float slope = -(1 / kLn2) * p_.terms.slopes[tile.head * p_.terms.slope_stride];
    const int64_t query = int64_t{tile.first + row_} * at.q_stride;
    const int64_t distance = at.distance + query - int64_t{key} * at.k_stride;
    const auto upper = static_cast<float>(distance);
    const auto lower = static_cast<float>(distance + 8 * int64_t{at.q_stride});
    const auto stride = static_cast<float>(at.k_stride);
#pragma unroll
    for (int i = 0; i < R / 4; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float column = 8 * i + e;
        s[4 * i + e] = fmaf(slope, fabsf(fmaf(-stride, column, upper)), s[4 * i + e]);
        s[4 * i + 2 + e] = fmaf(slope, fabsf(fmaf(-stride, column, lower)), s[4 * i + 2 + e]);
      }
  }

  /// The larger of what is there and `value`, in whatever order threads come. A NaN stays.
  static __device__ __forceinline__ void raise(float* target, float value) {
    value += 0.0f;  // one zero of two
    if (value >= 0) {
      atomicMax(reinterpret_cast<int*>(target), __float_as_int(value));
    } else {
      atomicMin(reinterpret_cast<unsigned*>(target), __float_as_uint(value));
    }
  }

  const Parameters& p_;
  int row_;
  uint32_t kept_[kWords];    // bits 2 c and 2 c + 1: whether column c of both rows stays
  float peak_ = -kInfinity;  // of this thread's rows
};

}  // namespace longspan::hopper
