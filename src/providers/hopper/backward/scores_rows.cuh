// A thread's two rows of a unit of scores, eight apart: LSE and delta, and what they do not see.
#pragma once

#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/backward/scores_shared.cuh"
#include "providers/hopper/forward/rows.cuh"

namespace longspan::hopper {

/// Columns that two rows see, counted from a thread's first one.
struct SeenKeys {
  int first_upper, first_lower;
  int last_upper, last_lower;

  /// Those that are not seen become `hidden`.
  template <int R>
  __device__ __forceinline__ void hide(float (&d)[R], float hidden) const {
    hide_behind(d, last_upper, last_lower, hidden);
    hide_before(d, first_upper, first_lower, hidden);
  }
};

class UnitRows {
 public:
  __device__ __forceinline__ UnitRows(const ScoreParameters& p, int group)
      : p_(p),
        low_(group * 64),
        row_(low_ + (threadIdx.x & 127) / 32 * 16 + (threadIdx.x & 31) / 4) {}

  /// The upper row's number in the unit.
  __device__ __forceinline__ int upper() const { return row_; }

  /// Begins to read what the rows of the next unit need.
  __device__ __forceinline__ void fetch(volatile ScoreUnit& unit) {
    const auto* const from =
        reinterpret_cast<const float2*>(p_.statistics) + unit.head * p_.rows + unit.q_row + row_;
    fetched_[0] = __ldg(from);
    fetched_[1] = __ldg(from + 8);
  }
  /// Takes what was fetched. Rows that do not exist: P and dS are 0.
  __device__ __forceinline__ void take_fetched(volatile ScoreUnit& unit) {
#pragma unroll
    for (float2& row : fetched_) asm volatile("" : "+f"(row.x), "+f"(row.y));  // not before here
    const int left = unit.queries - row_;
    subtracted = {left > 0 ? fetched_[0].x : kInfinity, left > 8 ? fetched_[1].x : kInfinity};
    delta_ = {left > 0 ? fetched_[0].y : 0, left > 8 ? fetched_[1].y : 0};
  }
  __device__ __forceinline__ void take_delta() { subtracted = delta_; }

  /// Makes `unit` the one of hides().
  __device__ __forceinline__ void begin(volatile ScoreUnit& unit) {
    const int lo = unit.lo, hi = unit.hi, keys = unit.keys;
    const bool short_of_queries = unit.queries < low_ + 64;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = half * 128;
      hides_[half] = short_of_queries || keys < first + 128 || first - (low_ + 63) < lo ||
                     first + 127 - low_ > hi;
    }
  }
  /// Whether a half has pairs that do not see each other, or do not exist.
  __device__ __forceinline__ bool hides(int half) const { return rarely(hides_[half]); }
  /// What the rows see of the keys from `first_key` on.
  __device__ __forceinline__ SeenKeys seen(volatile ScoreUnit& unit, int first_key) const {
    const int key = first_key + (threadIdx.x & 3) * 2;
    const int at = row_ - key, end = unit.keys - 1 - key, lo = unit.lo, hi = unit.hi;
    const int left = unit.queries - row_;
    return {.first_upper = at + lo,
            .first_lower = at + 8 + lo,
            .last_upper = left > 0 ? min(at + hi, end) : -1,
            .last_lower = left > 8 ? min(at + 8 + hi, end) : -1};
  }

  Rows subtracted = {0, 0};  // LSE in units of log2, or delta

 private:
  const ScoreParameters& p_;
  int low_, row_;
  Rows delta_;
  float2 fetched_[2];  // of the upper and the lower row
  bool hides_[2] = {false, false};
};

}  // namespace longspan::hopper
