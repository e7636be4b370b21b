// A consumer warpgroup: dV of 64 keys, and their dS, walk after walk.
//
//   S^T = K Q^T,  P^T = exp2(S^T scale - LSE),  dP^T = V dO^T,  dV += P^T dO,
//   dS^T = P^T (dP^T - delta)
//
// P stays in registers, where it is the left operand of dV's product. Exponentials run while dP is
// multiplied, and half of dS is made while dV is.
#pragma once

#include "providers/hopper/backward/gradients_results.cuh"
#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/backward/scores_rows.cuh"
#include "providers/hopper/backward/values_shared.cuh"
#include "providers/hopper/ptx/arithmetic.cuh"
#include "providers/hopper/ptx/flags.cuh"
#include "providers/hopper/ptx/stores.cuh"
#include "providers/hopper/ptx/tma.cuh"
#include "providers/hopper/ptx/wgmma.cuh"

namespace longspan::hopper {

template <class C>
class ValueConsumer {
 public:
  using T = typename C::Element;

  __device__ __forceinline__ ValueConsumer(const ValueParameters& p, const ValueShared& sm,
                                           int group)
      : p_(p), sm_(sm), group_(group) {
    const int warp = (threadIdx.x & 127) / 32, lane = threadIdx.x & 31;
    const int chunk = (warp * 2 + (lane >> 3 & 1)) ^ (lane & 7);
    put_ = group * C::kStagingBytes + ((lane >> 4) * 8 + (lane & 7)) * 128 + (chunk << 4);
  }

  __device__ __forceinline__ void run() {
    for (int number = 0;; ++number) {
      const int slot = number & (C::kWalks - 1);
      bounded_wait(sm_.walk_full + slot * 8, number / C::kWalks & 1);
      volatile ValueWalk& walk = sm_.walks[slot];
      const int steps = walk.steps;
      if (steps < 0) break;
      sum(steps);
      write(slot);
    }
    if (leads()) tma_store_wait();
  }

 private:
  static constexpr int kSteps = kUnitQueries / 16;
  using Packed = uint32_t[kSteps][4];

  __device__ __forceinline__ bool leads() const { return (threadIdx.x & 127) == 0; }

  __device__ __forceinline__ void sum(int steps) {
    if (steps == 0) {
#pragma unroll
      for (float& x : dv_) x = 0;
      return;
    }
    accumulators_dead(dv_);
    bounded_wait(sm_.keys_full, walks_ & 1);
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ++step_) run_step(i == 0, i + 1 == steps);
    wgmma_wait<0>();
    accumulators_ready(dv_);
    if (leads()) mbarrier_arrive(sm_.dout_empty + (step_ - 1) % C::kDoutStages * 8);
    ++walks_;
  }

  __device__ __forceinline__ void run_step(bool first, bool last) {
    float s[64], dp[64];
    Packed p;
    issue_scores(s);
    // dV of the step before is over.
    wgmma_wait<1>();
    if (!first && leads()) mbarrier_arrive(sm_.dout_empty + (step_ - 1) % C::kDoutStages * 8);
    if (rarely(first)) bounded_wait(sm_.values_full, walks_ & 1);
    issue_dp(dp);
    const int slot = step_ % C::kStatistics;
    bounded_wait(sm_.step_full + slot * 8, step_ / C::kStatistics & 1);
    wgmma_wait<1>();
    accumulators_ready(s);
    if (leads()) release_scores(last);
    volatile ValueStep& step = sm_.steps[slot];
    if (rarely(step.hides[group_])) seen(step).hide(s, p_.hidden);
    const uint32_t statistics =
        opaque(sm_.statistics) + slot * C::kStatisticBytes + (threadIdx.x & 3) * 16;
    exponentials(s, statistics);
    wait_dout();  // NOTE: long over; its branch keeps ptxas from moving the wait below up here
    wgmma_wait<0>();
    accumulators_ready(dp);
    if (last && leads()) mbarrier_arrive(sm_.values_empty);
    if (rarely(step.hides[group_])) seen(step).hide(dp, 0);
    const int block = step.block + group_, pitch = step.pitch;
    open_staging();
    differences<0>(s, dp, statistics + C::kStatisticBytes / 2, p);
    issue_values<0>(p, !first);
    differences<1>(s, dp, statistics + C::kStatisticBytes / 2, p);
    issue_values<1>(p, 1);
    store(block, pitch, slot);
  }

  __device__ __forceinline__ void release_scores(bool last) const {
#pragma unroll
    for (int i = 0; i < C::kKeyBlocks; ++i) mbarrier_arrive(sm_.queries_empty + i * 8);
    if (last) mbarrier_arrive(sm_.keys_empty);
  }

  __device__ __forceinline__ void issue_scores(float (&s)[64]) const {
    accumulators_dead(s);
    const uint32_t low_k = low_k_major(opaque(sm_.keys) + group_ * 8192);
    const uint32_t low_q = low_k_major(opaque(sm_.queries));
    constexpr int kBlock = C::kColumnBytes / 16;
#pragma unroll
    for (int i = 0; i < C::kKeyBlocks; ++i) {
      bounded_wait(sm_.queries_full + i * 8, step_ & 1);
      wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < 4; ++kk) {
        Wgmma<T, 128>::template ss<0, 0>(s, descriptor(low_k + i * kBlock + kk * kStepK),
                                         descriptor(low_q + i * kBlock + kk * kStepK),
                                         i > 0 || kk > 0);
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ uint32_t dout() const {
    return opaque(sm_.dout) + step_ % C::kDoutStages * C::kValueBytes;
  }
  __device__ __forceinline__ void wait_dout() const {
    bounded_wait(sm_.dout_full + step_ % C::kDoutStages * 8, step_ / C::kDoutStages & 1);
  }
  __device__ __forceinline__ void issue_dp(float (&dp)[64]) const {
    accumulators_dead(dp);
    const uint32_t low_v = low_k_major(opaque(sm_.values) + group_ * 8192);
    const uint32_t low_d = low_k_major(dout());
    constexpr int kBlock = C::kColumnBytes / 16;
    wait_dout();
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kValueBlocks * 4; ++i) {
      const int at = i / 4 * kBlock + i % 4 * kStepK;
      Wgmma<T, 128>::template ss<0, 0>(dp, descriptor(low_v + at), descriptor(low_d + at), i > 0);
    }
    wgmma_commit();
  }
  /// dV of half of the queries.
  template <int HALF>
  __device__ __forceinline__ void issue_values(const Packed& p, int accumulate) {
    const uint32_t low_d = low_mn_major(dout(), C::kColumnBytes);
    constexpr int kFirst = HALF * kSteps / 2;
    wgmma_fence();
#pragma unroll
    for (int kk = kFirst; kk < kFirst + kSteps / 2; ++kk) {
      Wgmma<T, 128>::template rs<1>(dv_, p[kk], descriptor(low_d + kk * kStepMn),
                                    kk > kFirst || accumulate);
    }
    if (HALF == 1) wgmma_commit();
  }

  /// What this thread's keys see of a step's queries.
  __device__ __forceinline__ SeenKeys seen(volatile ValueStep& step) const {
    const int key = upper_key(), query = (threadIdx.x & 3) * 2;
    const int at = key - query, end = step.queries - 1 - query;
    const int lo = step.lo, hi = step.hi, keys = step.keys;
    return {.first_upper = at - hi,
            .first_lower = at + 8 - hi,
            .last_upper = key < keys ? min(at - lo, end) : -1,
            .last_lower = key + 8 < keys ? min(at + 8 - lo, end) : -1};
  }
  /// This thread's upper key in a walk.
  __device__ __forceinline__ int upper_key() const {
    return group_ * 64 + (threadIdx.x & 127) / 32 * 16 + (threadIdx.x & 31) / 4;
  }

  static __device__ __forceinline__ float4 load_shared(uint32_t from) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(from));
    return x;
  }

  /// Turns S into P.
  // NOTE: packed later: ptxas has no registers for that while dP is multiplied, and would wait for
  // every product.
  __device__ __forceinline__ void exponentials(float (&s)[64], uint32_t lse) const {
    const float scale = p_.scale_log2;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const float4 row = load_shared(lse + i * 64);
      const float rows[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& x = s[8 * i + e];
        x = exp2_in_order(fmaf(x, scale, -rows[e / 4 * 2 + e % 2]));
      }
    }
  }

  /// Waits until dS of the step before has left.
  __device__ __forceinline__ void open_staging() const {
    if (leads()) tma_store_wait_read();
    named_barrier_sync(1 + group_, 128);
  }
  /// dS of half of the queries, and P as dV's product takes it.
  template <int HALF>
  __device__ __forceinline__ void differences(const float (&s)[64], const float (&dp)[64],
                                              uint32_t delta, Packed& p) const {
    const uint32_t to = opaque(sm_.staging) + put_;
#pragma unroll
    for (int i = HALF * kSteps / 2; i < (HALF + 1) * kSteps / 2; ++i) {
      const float4 row = load_shared(delta + i * 64);
      const float rows[4] = {row.x, row.y, row.z, row.w};
      uint32_t ds[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int x = 8 * i + 2 * e, r = e / 2 * 2;
        p[i][e] = pack<T>(s[x], s[x + 1]);
        ds[e] = pack<T>(s[x] * (dp[x] - rows[r]), s[x + 1] * (dp[x + 1] - rows[r + 1]));
      }
      // Rows of blocks are queries: turned round.
      store_transposed(to + i / 4 * kBlockBytes + i % 4 * 2048, ds[0], ds[1], ds[2], ds[3]);
    }
  }
  /// dS of two blocks to scratch.
  __device__ __forceinline__ void store(int block, int pitch, int slot) const {
    fence_async_proxy();
    named_barrier_sync(1 + group_, 128);
    if (!leads()) return;
    mbarrier_arrive(sm_.step_empty + slot * 8);
    const uint32_t from = sm_.staging + group_ * C::kStagingBytes;
    char* const to = p_.chunk.ds + static_cast<int64_t>(block) * kBlockBytes;
    bulk_store(to, from, kBlockBytes);
    bulk_store(to + static_cast<int64_t>(pitch) * kBlockBytes, from + kBlockBytes, kBlockBytes);
    tma_store_commit();
  }

  __device__ __forceinline__ void write(int slot) {
    volatile ValueWalk& walk = sm_.walks[slot];
    const int row = upper_key(), rows = walk.rows - row;
    const GradientPlace at = {walk.row + row, walk.head, 0, {rows > 0, rows > 8}};
    const bool adds = walk.adds != 0, ends = walk.ends != 0;
    const int part = walk.sum_part, parts = walk.sum_parts;
    uint32_t* const turn = p_.turns + walk.turn * 2 + group_;
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbarrier_arrive(sm_.walk_empty + slot * 8);
    if (part > 0) await_turn(turn, part);
    write_gradient<T>(p_.values, dv_, at, adds, ends);
    if (parts > 1) pass_turn(turn, part + 1 == parts ? 0 : part + 1);
  }

  /// Waits until the part before has added its rows. It was drawn before, and is waited for by none
  /// that it waits for.
  __device__ __forceinline__ void await_turn(const uint32_t* turn, uint32_t part) const {
    if (leads()) {
#pragma unroll 1
      while (load_acquire<Scope::kDevice>(turn) != part) {
      }
    }
    named_barrier_sync(1 + group_, 128);
  }
  __device__ __forceinline__ void pass_turn(uint32_t* turn, uint32_t next) const {
    named_barrier_sync(1 + group_, 128);
    if (leads()) store_release(turn, next);
  }

  const ValueParameters& p_;
  const ValueShared& sm_;
  int group_;
  uint32_t put_;  // where it puts dS
  float dv_[64];  // accumulators
  int walks_ = 0, step_ = 0;
};

}  // namespace longspan::hopper
