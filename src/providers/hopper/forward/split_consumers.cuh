// The consumer warpgroups of the kernel of 512 columns.
//  - Softmax in halves of 64 keys: the first half's P V runs under the second half's exponentials.
//  - The right warpgroup starts on P of a block only when the left one's next scores are nearly
//    done, so that its products fill the left one's softmax.
//  - The reference of a row is raised, and O scaled, only where a maximum exceeds it by 2^8.
#pragma once

#include "providers/hopper/forward/split_shared.cuh"

namespace longspan::hopper {

template <int R>
__device__ __forceinline__ void scale_if_raised(float (&o)[R], Rows factor) {
  if (__any_sync(~0u, factor.upper != 1 || factor.lower != 1)) scale_rows(o, factor);
}

template <class C>
class SplitLeft {
 public:
  using T = typename C::Element;
  static constexpr int kKeys = C::kKeys;

  __device__ __forceinline__ SplitLeft(const Parameters& p, const SplitShared& sm)
      : p_(p), sm_(sm), t_(threadIdx.x & 127), lane_(threadIdx.x & 31) {
    row_ = t_ / 32 * 16 + lane_ / 4;
  }

  __device__ __forceinline__ void run() {
    for (number_ = 0;; ++number_) {
      mbarrier_wait(sm_.q_full, number_ & 1);
      volatile Tile& tile = sm_.tiles[number_ % kSplitTiles];
      if (tile.first < 0) break;
      block_ = tile.block_min;
      last_ = tile.block_max;
      unmasked_ = unmasked_blocks<kKeys>(tile, tile.first);
      attend(tile);
      finish(tile);
    }
    publish(-1, false, false);
    if (t_ == 0) mbarrier_arrive(sm_.p_full + (step_ & 1) * 8);
  }

 private:
  __device__ __forceinline__ void attend(volatile Tile& tile) {
    max_ = {kNoKey, kNoKey}, sum_ = {0, 0};
    scores<0>(step_ & 1);
    wgmma_wait<0>();
    release(3);
    if (block_ == last_ && t_ == 0) mbarrier_arrive(sm_.q_empty);
    accumulators_ready(s_);
    for (bool first = true;; first = false) {
      if (!unmasked_.holds(block_)) hide(tile);
      const Rows factor = raise_reference();
      if (!first) scale_if_raised(o_, factor);
      const int buffer = step_ & 1;
      exponentials_and_output(first);
      mbarrier_wait(sm_.p_free + buffer * 8, (step_ >> 1 & 1) ^ 1);
      share(factor, buffer);
      const bool last = block_ == last_;
      publish(number_, first, last);
      named_barrier_sync(kLeftOnly, 128);
      if (last && t_ == 0) mbarrier_arrive(sm_.p_full + buffer * 8);
      wgmma_wait<1>();
      release(0);
      wgmma_wait<0>();
      release(1);
      accumulators_ready(o_);
      ++step_;
      if (last) return;
      ++block_;
      scores<2>(step_ & 1);
      if (t_ == 0) mbarrier_arrive(sm_.p_full + buffer * 8);
      wgmma_wait<0>();
      release(1);
      if (block_ == last_ && t_ == 0) mbarrier_arrive(sm_.q_empty);
      accumulators_ready(s_);
    }
  }

  __device__ __forceinline__ void release(int slot) const {
    if (t_ == 0) mbarrier_arrive(sm_.empty + slot * 8);
  }

  /// S with chunk c of K in slot (FIRST_SLOT + c) % 4. Returns while the last two products may
  /// still run; the caller waits and releases the last slot.
  template <int FIRST_SLOT>
  __device__ __forceinline__ void scores(int parity23) {
    accumulators_dead(s_);
    const uint32_t low_q = opaque(low_k_major(sm_.q)), low_k = opaque(low_k_major(sm_.ring));
    const uint32_t full = opaque(sm_.full_left);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int slot = (FIRST_SLOT + c) & 3;
      mbarrier_wait(full + slot * 8, slot < 2 ? 0 : parity23);
      wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < 8; ++kk) {
        const int block = kk / 4, step = kk % 4 * kStepK;
        Wgmma<T, kKeys>::template ss<0, 0>(
            s_, descriptor(low_q + c * 1024 + block * 512 + step),
            descriptor(low_k + slot * C::kSlotUnits + block * 1024 + step), !(c == 0 && kk == 0));
        if (c == 3 && kk == 5) wgmma_commit();
      }
      wgmma_commit();
      if (c == 0) continue;
      if (c == 3) {
        wgmma_wait<2>();
      } else {
        wgmma_wait<1>();
      }
      release((FIRST_SLOT + c - 1) & 3);
    }
    wgmma_wait<1>();
  }

  __device__ __forceinline__ void hide(volatile Tile& tile) {
    const int key = block_ * kKeys + (lane_ & 3) * 2;
    const int at = tile.first + row_ - key, end = tile.keys - 1 - key;
    const int lo = tile.lo, hi = tile.hi;
    hide_behind(s_, min(at + hi, end), min(at + 8 + hi, end));
    hide_before(s_, at + lo, at + 8 + lo);
  }

  /// Returns what O must be scaled by.
  __device__ __forceinline__ Rows raise_reference() {
    constexpr float kRaise = 8;
    const Rows peak = quad_max(thread_max(s_));
    const Rows high = {peak.upper * p_.scale_log2, peak.lower * p_.scale_log2};
    Rows factor = {1, 1};
    if (high.upper > max_.upper + kRaise) {
      factor.upper = exp2_fast(max_.upper - high.upper);
      max_.upper = high.upper;
    }
    if (high.lower > max_.lower + kRaise) {
      factor.lower = exp2_fast(max_.lower - high.lower);
      max_.lower = high.lower;
    }
    sum_.upper *= factor.upper;
    sum_.lower *= factor.lower;
    return factor;
  }

  __device__ __forceinline__ void exponentials_and_output(bool first) {
    const uint32_t full = opaque(sm_.full_left);
    const uint32_t low_v = opaque(low_mn_major(sm_.ring, C::kVBlockBytes));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 4 * half; i < 4 * half + 4; ++i) exponentials(i);
      mbarrier_wait(full + half * 8, 1);
      wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < 4; ++kk) {
        Wgmma<T, 256>::template rs<1>(o_, prob_[4 * half + kk],
                                      descriptor(low_v + half * C::kSlotUnits + kk * kStepMn),
                                      half > 0 || kk > 0 || !first);
      }
      wgmma_commit();
    }
  }

  /// P of 16 keys, as an A operand.
  __device__ __forceinline__ void exponentials(int i) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int x = (i * 2 + e) * 4;
      const float a = exp2_in_order(fmaf(s_[x], p_.scale_log2, -max_.upper));
      const float b = exp2_in_order(fmaf(s_[x + 1], p_.scale_log2, -max_.upper));
      const float c = exp2_in_order(fmaf(s_[x + 2], p_.scale_log2, -max_.lower));
      const float d = exp2_in_order(fmaf(s_[x + 3], p_.scale_log2, -max_.lower));
      sum_.upper += a + b;
      sum_.lower += c + d;
      prob_[i][2 * e] = pack<T>(a, b);
      prob_[i][2 * e + 1] = pack<T>(c, d);
    }
  }

  /// P and the factors of O to shared memory, for the right warpgroup.
  __device__ __forceinline__ void share(Rows factor, int buffer) const {
    if ((lane_ & 3) == 0) {
      sm_.factors[buffer][row_] = factor.upper;
      sm_.factors[buffer][row_ + 8] = factor.lower;
    }
    const uint32_t rows = opaque(sm_.p + buffer * C::kPBytes) + (t_ / 32 * 16 + (lane_ & 15)) * 128;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t chunk = (2 * (i & 3) + (lane_ >> 4)) ^ (lane_ & 7);
      store_matrices(rows + i / 4 * 8192 + (chunk << 4), prob_[i][0], prob_[i][1], prob_[i][2],
                     prob_[i][3]);
    }
    fence_async_proxy();
  }

  __device__ __forceinline__ void publish(int tile, bool first, bool last) const {
    const int buffer = step_ & 1;
    if (tile < 0) mbarrier_wait(sm_.p_free + buffer * 8, (step_ >> 1 & 1) ^ 1);
    if (t_ != 0) return;
    sm_.parts[buffer].tile = tile;
    sm_.parts[buffer].first = first;
    sm_.parts[buffer].last = last;
  }

  __device__ __forceinline__ void finish(volatile Tile& tile) {
    sum_ = quad_sum(sum_);
    const int at = tile.first + row_, row = tile.q_row + at, head = tile.head;
    const Place places[2] = {{row, head, at < tile.queries},
                             {row + 8, head, at + 8 < tile.queries}};
    const Weight w[2] = {finish_row<C::kMerges>(p_, places[0], max_.upper, sum_.upper),
                         finish_row<C::kMerges>(p_, places[1], max_.lower, sum_.lower)};
    if ((lane_ & 3) == 0) {
      sm_.weights[number_ & 1][row_] = w[0];
      sm_.weights[number_ & 1][row_ + 8] = w[1];
    }
    named_barrier_arrive(kSumsReady + (number_ & 1), 256);
    write_part<C>(p_, o_, places, w, 0);
  }

  const Parameters& p_;
  const SplitShared& sm_;
  int t_, lane_, row_;         // row: this thread's upper one in a tile
  int number_ = 0, step_ = 0;  // of tiles, of key blocks
  int block_ = 0, last_ = 0;
  Unmasked unmasked_;
  float o_[128], s_[64];
  uint32_t prob_[8][4];
  Rows max_, sum_;
};

template <class C>
__device__ __forceinline__ void attend_right(const Parameters& p, const SplitShared& sm) {
  using T = typename C::Element;
  float o[128];
  const int t = threadIdx.x & 127, lane = t & 31, row = t / 32 * 16 + lane / 4;
  for (int step = 0;; ++step) {
    const int buffer = step & 1;
    mbarrier_wait(sm.p_full + buffer * 8, step >> 1 & 1);
    const int number = sm.parts[buffer].tile, first = sm.parts[buffer].first;
    const bool last = sm.parts[buffer].last;
    if (number < 0) return;
    if (!first) scale_if_raised(o, {sm.factors[buffer][row], sm.factors[buffer][row + 8]});
    const uint32_t full = opaque(sm.full_right);
    const uint32_t low_p = opaque(low_k_major(sm.p + buffer * C::kPBytes));
    const uint32_t low_v = opaque(low_mn_major(sm.ring, C::kVBlockBytes));
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int slot = 2 + c;
      mbarrier_wait(full + slot * 8, step & 1);
      wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < 4; ++kk) {
        Wgmma<T, 256>::template ss<0, 1>(o, descriptor(low_p + c * 512 + kk * kStepK),
                                         descriptor(low_v + slot * C::kSlotUnits + kk * kStepMn),
                                         c > 0 || kk > 0 || !first);
      }
      wgmma_commit();
    }
    wgmma_wait<1>();
    if (t == 0) mbarrier_arrive(sm.empty + 2 * 8);
    wgmma_wait<0>();
    accumulators_ready(o);
    if (t == 0) mbarrier_arrive(sm.empty + 3 * 8);
    if (!last) {
      if (lane == 0) mbarrier_arrive(sm.p_free + buffer * 8);
      continue;
    }
    named_barrier_sync(kSumsReady + (number & 1), 256);
    volatile Tile& tile = sm.tiles[number % kSplitTiles];
    const int at = tile.first + row, place = tile.q_row + at, head = tile.head;
    const Place places[2] = {{place, head, at < tile.queries},
                             {place + 8, head, at + 8 < tile.queries}};
    const Weight w[2] = {sm.weights[number & 1][row], sm.weights[number & 1][row + 8]};
    // NOTE: only now: this also frees the weights, the tile and the named barrier for later tiles.
    __syncwarp();
    if (lane == 0) mbarrier_arrive(sm.p_free + buffer * 8);
    write_part<C>(p, o, places, w, 256);
  }
}

}  // namespace longspan::hopper
