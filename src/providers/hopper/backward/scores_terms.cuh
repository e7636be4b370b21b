// Score terms of a thread's pairs in backward: two rows of a unit of scores, eight apart.
//
//   score = cap tanh(Q K^T scale / cap) - slope |distance|,  dS = P (keep dP - delta) (1 - tanh^2)
//
// keep: 0 for a pair that dropout drops, else its factor. dV is a sum of P without dropped pairs;
// the factor is applied with the sum.
#pragma once

#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/backward/scores_shared.cuh"
#include "providers/hopper/forward/score_arithmetic.cuh"

namespace longspan::hopper {

/// `x`, for what must not be computed before `other` is.
// NOTE: grids have no second dimension, so nothing is added, but ptxas does not know.
__device__ __forceinline__ float behind(float x, uint32_t other) {
  return __uint_as_float(__float_as_uint(x) | (other & blockIdx.y));
}

enum class Cap { kNone, kNarrow, kWide };

/// What the parts of a half of a unit share.
struct HalfTerms {
  Distances distances;
  // Results of the part before, which the next one must not overtake.
  // NOTE: else ptxas packs behind all parts, from twice the registers.
  uint32_t before = 0;
};

class UnitTerms {
 public:
  /// `row`: the upper one.
  __device__ __forceinline__ UnitTerms(const ScoreParameters& p, int row) : p_(p), row_(row) {}

  /// Draws which pairs of a unit dropout keeps. Needs no scores: products run meanwhile.
  __device__ __forceinline__ void draw(const Tokens& at, int head) {
    if (!p_.terms.drops) return;
    PairDraw draw(p_.terms, at, head, row_, first_key(0));
#pragma unroll
    for (uint32_t& word : kept_) word = draw.next(8);
  }

  /// Terms of a half of a unit, before its first part.
  __device__ __forceinline__ HalfTerms half(const Tokens& at, int head, int number) const {
    if (p_.terms.slopes == nullptr) return {};
    return {distances_of(p_.terms, at, head, row_, first_key(number))};
  }

  /// Makes scores, in units of log2, of products with 16 keys, number `part` of a half's. With a
  /// cap `derivative` becomes that of each score by the scaled product.
  template <Cap CAP>
  __device__ __forceinline__ void apply(const HalfTerms& half, int part, float (&s)[8],
                                        float (&derivative)[8]) const {
    const Distances& d = half.distances;
    const ProductScales by = {behind(p_.scale_log2, half.before),
                              behind(p_.terms.cap_rate, half.before)};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (CAP == Cap::kNone) {
        s[i] *= by.log2;
      } else {
        s[i] = capped<CAP == Cap::kWide>(p_.terms, s[i], by);
        const float x = s[i] * p_.cap_inverse;
        derivative[i] = fmaxf(fmaf(-x, x, 1), 0);  // not NaN, which pairs of other rows may hold
      }
      const float column = 16 * part + i / 4 * 8 + i % 2;
      s[i] = d.added(s[i], i / 2 % 2 == 0 ? d.upper : d.lower, column);
    }
  }

  /// Zeroes what dropout drops of packed words of P, of keys as in apply().
  __device__ __forceinline__ void drop(int half, int part, uint32_t (&p)[4]) const {
    if (!p_.terms.drops) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) p[i] &= kept_bits(kept_, half * 32 + part * 4 + i);
  }

  /// Applies dropout to dP of a half.
  template <int HALF>
  __device__ __forceinline__ void drop(float (&dp)[64]) const {
    if (!p_.terms.drops) return;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const uint32_t word = kept_[HALF * 2 + i / 32];
      const int bit = i % 32 / 4 * 4 + i % 2 * 2 + i / 2 % 2;
      dp[i] = word >> bit & 1 ? dp[i] * p_.terms.keep_factor : 0;
    }
  }

 private:
  static __device__ __forceinline__ int first_key(int half) {
    return half * 128 + (threadIdx.x & 3) * 2;
  }

  const ScoreParameters& p_;
  int row_;
  uint32_t kept_[4];  // as PairDraw::next() makes them
};

}  // namespace longspan::hopper
