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

enum class Cap { kNone, kNarrow, kWide };

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

  /// What ALiBi adds to a half of a unit.
  __device__ __forceinline__ Distances distances(const Tokens& at, int head, int half) const {
    if (p_.terms.slopes == nullptr) return {};
    return distances_of(p_.terms, at, head, row_, first_key(half));
  }

  /// Makes scores, in units of log2, of products with 16 keys, number `part` of a half's. The
  /// result is what each score's derivative is of that of the scaled product.
  template <Cap CAP>
  __device__ __forceinline__ void apply(const ProductScales& by, const Distances& d, int part,
                                        float (&s)[8], float (&slope)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (CAP == Cap::kNone) {
        s[i] *= by.log2;
      } else {
        s[i] = capped<CAP == Cap::kWide>(p_.terms, s[i], by);
        const float tanh = s[i] * p_.terms.cap_inverse;
        slope[i] = fmaxf(fmaf(-tanh, tanh, 1), 0);  // not NaN, which hidden pairs may hold
      }
      const float column = 16 * part + i / 4 * 8 + i % 2;
      s[i] = d.added(s[i], i / 2 % 2 == 0 ? d.upper : d.lower, column);
    }
  }

  /// Not before `other` is there.
  // NOTE: else ptxas packs behind all parts of a half, from twice the registers.
  __device__ __forceinline__ ProductScales scales(uint32_t other) const {
    return {behind(p_.scale_log2, other), behind(p_.terms.cap_rate, other)};
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
