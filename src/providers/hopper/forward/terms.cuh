// Score terms of one warpgroup's rows: soft cap, ALiBi, dropout, and the largest logits.
#pragma once

#include "providers/hopper/forward/score_arithmetic.cuh"
#include "providers/hopper/forward/tiles.cuh"

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
    const Tokens& at = p_.terms.tokens[tile.tokens];
    PairDraw draw(p_.terms, at, tile.head, tile.first + row_, key);
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      kept_[word] = draw.next(word < kWords - 1 ? 8 : KEYS / 8 - 8 * (kWords - 1));
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
    for (int n = 4 * FIRST; n < 4 * LAST; ++n) prob[n / 4][n % 4] &= kept_bits(kept_, n);
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

  template <bool WIDE, int R>
  __device__ __forceinline__ void cap(float (&s)[R]) const {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      s[i] = capped<WIDE>(p_.terms, s[i], {p_.scale_log2, p_.terms.cap_rate});
    }
  }

  template <int R>
  __device__ __forceinline__ void add_distances(volatile Tile& tile, int key, float (&s)[R]) const {
    const Tokens& at = p_.terms.tokens[tile.tokens];
    const Distances d = distances_of(p_.terms, at, tile.head, tile.first + row_, key);
#pragma unroll
    for (int i = 0; i < R / 4; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float column = 8 * i + e;
        s[4 * i + e] = d.added(s[4 * i + e], d.upper, column);
        s[4 * i + 2 + e] = d.added(s[4 * i + 2 + e], d.lower, column);
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
