// The softmax of one warpgroup's rows without a maximum.
//
// P is computed against a reference that earlier blocks left, not against the maximum. Only where
// its row sums come out large is a maximum looked for, the reference raised, P computed again and O
// scaled. Instructions beside products run at about half speed, so each one saved counts double.
#pragma once

#include "providers/hopper/forward/rows.cuh"
#include "providers/hopper/ptx/arithmetic.cuh"

namespace longspan::hopper {

constexpr float kRescaleStep = 8, kSumLimit = 4096;

template <class C>
class Softmax {
 public:
  using T = typename C::Element;
  static constexpr int kKeys = C::kKeys;
  using Probabilities = uint32_t[kKeys / 16][4];  // A operands of P V

  __device__ __forceinline__ explicit Softmax(float scale_log2) : scale_(scale_log2) {}

  /// The rows of a new tile.
  __device__ __forceinline__ void begin() {
    max = {kNoKey, kNoKey};
    sum = {0, 0};
  }

  /// P = exp2(S * scale - max) of 16-key steps [FIRST, LAST), and its row sums over this thread's
  /// columns.
  template <int FIRST = 0, int LAST = kKeys / 16>
  __device__ __forceinline__ Rows exponentials(Probabilities& prob) {
    Rows part = {0, 0};
#pragma unroll
    for (int i = FIRST; i < LAST; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int x = (i * 2 + e) * 4;
        const float a = exp2_in_order(fmaf(s[x], scale_, -max.upper));
        const float b = exp2_in_order(fmaf(s[x + 1], scale_, -max.upper));
        const float c = exp2_in_order(fmaf(s[x + 2], scale_, -max.lower));
        const float d = exp2_in_order(fmaf(s[x + 3], scale_, -max.lower));
        part.upper += a + b;
        part.lower += c + d;
        if (C::kEarlyPack) {
          prob[i][2 * e] = pack<T>(a, b);
          prob[i][2 * e + 1] = pack<T>(c, d);
          asm volatile("" : "+r"(prob[i][2 * e]), "+r"(prob[i][2 * e + 1]));
        } else {
          s[x] = a, s[x + 1] = b, s[x + 2] = c, s[x + 3] = d;
        }
      }
    return part;
  }

  /// Whether P would be, or has come out, too large against the reference, for any row of the warp.
  __device__ __forceinline__ bool too_low(const Rows& part) const {
    if (C::kEarlyPack) return __any_sync(~0u, part.upper > kSumLimit || part.lower > kSumLimit);
    const Rows peak = thread_max(s);
    return __any_sync(~0u, fmaf(peak.upper, scale_, -max.upper) > kRescaleStep ||
                               fmaf(peak.lower, scale_, -max.lower) > kRescaleStep);
  }

  /// Raises the reference of rows whose P would be, or is (by its sums `part`), too large, and of
  /// all rows at the `first` block. What happens to a row does not depend on the others.
  __device__ __forceinline__ void raise_reference(const Rows& part, bool first) {
    const Rows peak = quad_max(thread_max(s));
    const Rows high = {fmaxf(peak.upper * scale_, max.upper),
                       fmaxf(peak.lower * scale_, max.lower)};
    const Rows total =
        C::kEarlyPack ? quad_max(part) : Rows{high.upper - max.upper, high.lower - max.lower};
    constexpr float kLimit = C::kEarlyPack ? kSumLimit : kRescaleStep;
    const Rows before = max;
    if (first || total.upper > kLimit) max.upper = high.upper;
    if (first || total.lower > kLimit) max.lower = high.lower;
    factor = {exp2_fast(before.upper - max.upper), exp2_fast(before.lower - max.lower)};
    sum.upper *= factor.upper;
    sum.lower *= factor.lower;
  }

  /// Makes P of S. `factor` is what O must be scaled by, if `grown`.
  __device__ __forceinline__ void run(Probabilities& prob, bool first) {
    Rows part = {0, 0};
    bool raises = first;
    grown = 0;
    if (!rarely(first)) {
      if (C::kEarlyPack) part = exponentials(prob);
      raises = too_low(part);
    }
    if (rarely(raises)) {
      raise_reference(part, first);
      grown = !first;
      if (C::kEarlyPack) part = exponentials(prob);
    }
    if (!C::kEarlyPack) part = exponentials(prob);
    add(part);
  }
  __device__ __forceinline__ void add(const Rows& part) {
    sum.upper += part.upper;
    sum.lower += part.lower;
  }
  template <int FIRST = 0, int LAST = kKeys / 16>
  __device__ __forceinline__ void pack_late(Probabilities& prob) const {
    if constexpr (!C::kEarlyPack) {
#pragma unroll
      for (int i = FIRST; i < LAST; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) prob[i][e] = pack<T>(s[8 * i + 2 * e], s[8 * i + 2 * e + 1]);
    }
  }

  float s[kKeys / 2];
  Rows max, sum;  // max: the reference, in units of log2; sum: of this thread's columns
  Rows factor;    // what O must be scaled by before P V is added, if `grown` (alike in a warp)
  int grown = 0;

 private:
  float scale_;
};

}  // namespace longspan::hopper
