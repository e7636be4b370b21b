// A consumer warpgroup: P and dS of 64 queries x 256 keys, unit after unit.
//
//   S = Q K^T,  P = exp2(S scale - LSE),  dP = dO V^T,  dS = P (dP - delta)
//
// Every step of 64 columns is two products, of the left and of the right 128 keys. At the end of S
// or dP the left half is turned into P or dS while the right one multiplies, and the right half
// while the left one of what follows does: from S to dP, where exponentials take longest, for two
// steps on either side. P and dS wait, packed, in one set of registers; they are stored inside the
// product after them.
#pragma once

#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/backward/scores_shared.cuh"
#include "providers/hopper/forward/rows.cuh"
#include "providers/hopper/ptx/arithmetic.cuh"
#include "providers/hopper/ptx/tma.cuh"
#include "providers/hopper/ptx/wgmma.cuh"

namespace longspan::hopper {

enum class Product { kScores, kDp };

template <class T>
class ScoreConsumer {
 public:
  __device__ __forceinline__ ScoreConsumer(const ScoreParameters& p, const ScoreShared& sm,
                                           int group)
      : p_(p), sm_(sm), group_(group) {
    row_ = group * 64 + (threadIdx.x & 127) / 32 * 16 + (threadIdx.x & 31) / 4;
#pragma unroll
    for (int i = 0; i < 64; ++i) right_[i] = 0, packed_[i] = 0;
  }

  __device__ __forceinline__ void run() {
    while (next_unit()) {
      multiply_scores(p_.steps_qk);
      multiply_dp(p_.steps_v);
    }
    wgmma_wait<0>();
    accumulators_ready(right_);
    if (number_ >= 0) {
      finish<Product::kDp, 1>(right_);
      store<Product::kDp, 0>(block_);
      store<Product::kDp, 1>(block_);
    }
    if (leads()) tma_store_wait();
  }

 private:
  using C = ScoreConfig;

  /// Waits until the unit after this one is announced. False: there is none.
  __device__ __forceinline__ bool next_unit() const {
    const int next = number_ + 1;
    bounded_wait(sm_.unit_full + (next & (C::kUnits - 1)) * 8, next / C::kUnits & 1);
    return unit_at(next).head >= 0;
  }
  __device__ __forceinline__ volatile ScoreUnit& unit_at(int number) const {
    return sm_.units[number & (C::kUnits - 1)];
  }

  /// Makes the next unit this one.
  __device__ __forceinline__ void begin_unit() {
    __syncwarp();
    if (number_ >= 0 && (threadIdx.x & 31) == 0) {
      mbarrier_arrive(sm_.unit_empty + (number_ & (C::kUnits - 1)) * 8);
    }
    ++number_;
    volatile ScoreUnit& unit = unit_at(number_);
    last_block_ = block_;
    block_ = unit.block + group_ * unit.pitch;
    const int low = group_ * 64, lo = unit.lo, hi = unit.hi, keys = unit.keys;
    const bool short_of_queries = unit.queries < low + 64;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = half * 128;
      hides_[half] = short_of_queries || keys < first + 128 || first - (low + 63) < lo ||
                     first + 127 - low > hi;
    }
  }

  /// Begins to read what the next unit's rows need.
  __device__ __forceinline__ void fetch() {
    volatile ScoreUnit& unit = unit_at(number_ + 1);
    const auto* const from =
        reinterpret_cast<const float2*>(p_.statistics) + unit.head * p_.rows + unit.q_row + row_;
    fetched_[0] = __ldg(from);
    fetched_[1] = __ldg(from + 8);
  }
  /// Takes what was fetched. Rows that do not exist: P and dS are 0.
  __device__ __forceinline__ void take_fetched() {
#pragma unroll
    for (float2& row : fetched_) asm volatile("" : "+f"(row.x), "+f"(row.y));  // not before here
    const int left = unit_at(number_).queries - row_;
    rows_ = {left > 0 ? fetched_[0].x : kInfinity, left > 8 ? fetched_[1].x : kInfinity};
    delta_ = {left > 0 ? fetched_[0].y : 0, left > 8 ? fetched_[1].y : 0};
  }

  /// S of the next unit. On entry the right half of dP of this one is open.
  __device__ __forceinline__ void multiply_scores(int steps) {
    issue_next<0>(left_, 0);
    fetch();
    wgmma_wait<1>();
    release_open(0);
    accumulators_ready(right_);
    finish<Product::kDp, 1>(right_);
    issue<1>(right_, step_, 0);
    begin_unit();
    ++step_;
    open_ = 1;
#pragma unroll 1
    for (int i = 1; i < steps - 2; ++i, ++step_) {
      issue_next<0>(left_, 1);
      issue<1>(right_, step_, 1);
      wgmma_wait<2>();
      release_open(0);
      open_ = 1;
      if (number_ > 0 && i == 1) store<Product::kDp, 0>(last_block_);
    }
    // The left halves of the last two steps, then the right ones.
    issue_next<0>(left_, 1);
    ++step_;
    issue_next<0>(left_, 1);
    issue<1>(right_, step_ - 1, 1);
    issue<1>(right_, step_, 1);
    wgmma_wait<4>();
    release_open(1);
    ++step_;
    open_ = 2;
    if (number_ > 0 && steps < 4) store<Product::kDp, 0>(last_block_);
    if (number_ > 0) store<Product::kDp, 1>(last_block_);
    wgmma_wait<2>();
    accumulators_ready(left_);
    take_fetched();
    finish<Product::kScores, 0>(left_);
  }

  /// dP of this unit. On entry the right half of its S is open.
  __device__ __forceinline__ void multiply_dp(int steps) {
    // The left halves of the first two steps, then the right ones.
    issue_next<0>(left_, 0);
    ++step_;
    issue_next<0>(left_, 1);
    wgmma_wait<2>();
    release_open(1);
    accumulators_ready(right_);
    finish<Product::kScores, 1>(right_);
    issue<1>(right_, step_ - 1, 0);
    issue<1>(right_, step_, 1);
    ++step_;
    open_ = 2;
    if (steps < 4) store<Product::kScores, 0>(block_);
    if (steps < 3) store<Product::kScores, 1>(block_);
#pragma unroll 1
    for (int i = 2; i < steps; ++i, ++step_) {
      issue_next<0>(left_, 1);
      issue<1>(right_, step_, 1);
      wgmma_wait<2>();
      release_open(0);
      open_ = 1;
      if (i == 2) {
        if (steps >= 4) store<Product::kScores, 0>(block_);
        if (steps == 3) store<Product::kScores, 1>(block_);
      }
      if (i == 3) store<Product::kScores, 1>(block_);
    }
    wgmma_wait<1>();
    accumulators_ready(left_);
    rows_ = delta_;
    finish<Product::kDp, 0>(left_);
  }

  __device__ __forceinline__ bool leads() const { return (threadIdx.x & 127) == 0; }
  /// Frees the stages whose products are over: `open_` ones, the last of them `behind` + 1 steps
  /// ago.
  __device__ __forceinline__ void release_open(int behind) const {
    if (!leads()) return;
    const int last = step_ - 1 - behind;
    if (open_ > 0) mbarrier_arrive(sm_.empty + (last & (C::kStages - 1)) * 8);
    if (open_ > 1) mbarrier_arrive(sm_.empty + (last - 1 & (C::kStages - 1)) * 8);
  }
  /// Waits for the stage of this step before its first product.
  template <int HALF>
  __device__ __forceinline__ void issue_next(float (&d)[64], int accumulate) const {
    bounded_wait(sm_.full + (step_ & (C::kStages - 1)) * 8, step_ / C::kStages & 1);
    issue<HALF>(d, step_, accumulate);
  }
  template <int HALF>
  __device__ __forceinline__ void issue(float (&d)[64], int step, int accumulate) const {
    const uint32_t stage = opaque(sm_.stages) + (step & (C::kStages - 1)) * C::kStageBytes;
    const uint32_t low_a = low_k_major(stage + group_ * 8192);
    const uint32_t low_b = low_k_major(stage + C::kQueryBytes + HALF * 16384);
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) {
      Wgmma<T, 128>::template ss<0, 0>(d, descriptor(low_a + kk * kStepK),
                                       descriptor(low_b + kk * kStepK), kk > 0 || accumulate);
    }
    wgmma_commit();
  }

  /// Turns a half of S into P, or of dP into dS.
  template <Product PRODUCT, int HALF>
  __device__ __forceinline__ void finish(float (&d)[64]) {
    const bool scores = PRODUCT == Product::kScores;
    if (rarely(hides_[HALF])) hide(d, HALF * 128, scores ? p_.hidden : 0);
    if constexpr (scores) {
      exponentials<HALF>(d);
    } else {
      differences<HALF>(d);
    }
  }
  template <int HALF>
  __device__ __forceinline__ void exponentials(const float (&s)[64]) {
    const float scale = p_.scale_log2;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      packed_[HALF * 32 + 2 * i] = pack<T>(exp2_fast(fmaf(s[4 * i], scale, -rows_.upper)),
                                           exp2_fast(fmaf(s[4 * i + 1], scale, -rows_.upper)));
      packed_[HALF * 32 + 2 * i + 1] = pack<T>(exp2_fast(fmaf(s[4 * i + 2], scale, -rows_.lower)),
                                               exp2_fast(fmaf(s[4 * i + 3], scale, -rows_.lower)));
    }
  }
  template <int HALF>
  __device__ __forceinline__ void differences(const float (&dp)[64]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      uint32_t &upper = packed_[HALF * 32 + 2 * i], &lower = packed_[HALF * 32 + 2 * i + 1];
      const float2 u = unpack<T>(upper), l = unpack<T>(lower);
      upper = pack<T>(u.x * (dp[4 * i] - rows_.upper), u.y * (dp[4 * i + 1] - rows_.upper));
      lower = pack<T>(l.x * (dp[4 * i + 2] - rows_.lower), l.y * (dp[4 * i + 3] - rows_.lower));
    }
  }
  /// Pairs that do not see each other, or do not exist, become `hidden`.
  __device__ __forceinline__ void hide(float (&d)[64], int first_key, float hidden) const {
    volatile ScoreUnit& unit = unit_at(number_);
    const int key = first_key + (threadIdx.x & 3) * 2;
    const int at = row_ - key, end = unit.keys - 1 - key, lo = unit.lo, hi = unit.hi;
    const int left = unit.queries - row_;
    hide_behind(d, left > 0 ? min(at + hi, end) : -1, left > 8 ? min(at + 8 + hi, end) : -1,
                hidden);
    hide_before(d, at + lo, at + 8 + lo, hidden);
  }

  /// A packed half to the scratch of P or dS.
  template <Product PRODUCT, int HALF>
  __device__ __forceinline__ void store(int block) {
    const uint32_t staging = opaque(sm_.staging) + group_ * C::kStagingBytes;
    if (leads()) tma_store_wait_read();
    named_barrier_sync(1 + group_, 128);
    const int lane = threadIdx.x & 31, row = (threadIdx.x & 127) / 32 * 16 + (lane & 15);
    const uint32_t base = staging + row * 128;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t chunk = (2 * (i & 3) + (lane >> 4)) ^ (lane & 7);
      const int x = HALF * 32 + i * 4;
      store_matrices(base + i / 4 * kBlockBytes + (chunk << 4), packed_[x], packed_[x + 1],
                     packed_[x + 2], packed_[x + 3]);
    }
    fence_async_proxy();
    named_barrier_sync(1 + group_, 128);
    if (!leads()) return;
    char* const to = PRODUCT == Product::kScores ? p_.chunk.p : p_.chunk.ds;
    bulk_store(to + static_cast<int64_t>(block + HALF * 2) * kBlockBytes, staging, 2 * kBlockBytes);
    tma_store_commit();
  }

  const ScoreParameters& p_;
  const ScoreShared& sm_;
  int group_;
  float left_[64], right_[64];  // accumulators
  uint32_t packed_[64];         // a half in 32 each
  Rows rows_ = {0, 0};          // what is subtracted: LSE in units of log2, or delta
  Rows delta_;
  float2 fetched_[2];               // of the upper and the lower row
  int row_;                         // this thread's upper row in a unit
  int number_ = -1, step_ = 0;      // this unit, and step
  int open_ = 0;                    // steps before this one whose stages are not free
  int block_ = 0, last_block_ = 0;  // of scratch, of this unit and the one before
  bool hides_[2] = {false, false};  // whether the half has pairs that are hidden
};

}  // namespace longspan::hopper
