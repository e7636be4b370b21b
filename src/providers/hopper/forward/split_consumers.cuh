// The consumer warpgroups of the kernels above 256 columns.
//  - Softmax in halves of 64 keys: the first half's P V runs under the second half's exponentials.
//  - The right warpgroup starts on P of a block only when the left one's next scores are nearly
//    done, so that its products fill the left one's softmax.
#pragma once

#include "providers/hopper/forward/softmax.cuh"
#include "providers/hopper/forward/split_shared.cuh"
#include "providers/hopper/forward/terms.cuh"

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
      : p_(p),
        sm_(sm),
        t_(threadIdx.x & 127),
        lane_(threadIdx.x & 31),
        row_(t_ / 32 * 16 + lane_ / 4),
        terms_(p, row_),
        softmax_(terms_.scale()) {}

  __device__ __forceinline__ void run() {
    for (number_ = 0;; ++number_) {
      mbarrier_wait(sm_.q_full, number_ & 1);
      volatile Tile& tile = sm_.tiles[number_ % kSplitTiles];
      if (tile.first < 0) break;
      block_ = tile.block_min;
      last_ = tile.block_max;
      unmasked_ = unmasked_blocks<kKeys>(tile, tile.first, C::kRows);
      attend(tile);
      finish(tile);
    }
    publish(-1, false, false);
    if (t_ == 0) mbarrier_arrive(sm_.p_full + (step_ & 1) * 8);
  }

 private:
  __device__ __forceinline__ void attend(volatile Tile& tile) {
    softmax_.begin();
    scores<0>(step_ & 1);
    terms_.draw(tile, first_key());
    wgmma_wait<0>();
    release(3);
    if (block_ == last_ && t_ == 0) mbarrier_arrive(sm_.q_empty);
    accumulators_ready(softmax_.s);
    for (bool first = true;; first = false) {
      terms_.apply(tile, first_key(), softmax_.s);
      if (!unmasked_.holds(block_)) hide(tile);
      terms_.observe(tile, softmax_.s);
      const int buffer = step_ & 1;
      const Rows factor = weigh(first);
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
      terms_.draw(tile, first_key());
      wgmma_wait<0>();
      release(1);
      if (block_ == last_ && t_ == 0) mbarrier_arrive(sm_.q_empty);
      accumulators_ready(softmax_.s);
    }
  }

  __device__ __forceinline__ void release(int slot) const {
    if (t_ == 0) mbarrier_arrive(sm_.empty + slot * 8);
  }

  /// S with chunk c of K in slot (FIRST_SLOT + c) % 4. Returns while the last two products may
  /// still run; the caller waits and releases the last slot.
  template <int FIRST_SLOT>
  __device__ __forceinline__ void scores(int parity23) {
    accumulators_dead(softmax_.s);
    const uint32_t low_q = opaque(low_k_major(sm_.q)), low_k = opaque(low_k_major(sm_.ring));
    const uint32_t full = opaque(sm_.full_left);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int slot = (FIRST_SLOT + c) & 3;
      mbarrier_wait(full + slot * 8, slot < 2 ? 0 : parity23);
      wgmma_fence();
      const int first = C::chunk_first(c), products = 4 * C::chunk_blocks(c);
#pragma unroll
      for (int kk = 0; kk < products; ++kk) {
        const int block = kk / 4, step = kk % 4 * kStepK;
        Wgmma<T, kKeys>::template ss<0, 0>(
            softmax_.s, descriptor(low_q + (first + block) * 512 + step),
            descriptor(low_k + slot * C::kSlotUnits + block * 1024 + step), !(c == 0 && kk == 0));
        if (c == 3 && kk == products - 3) wgmma_commit();
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

  __device__ __forceinline__ int first_key() const {  // of this thread's columns of the block
    return block_ * kKeys + (lane_ & 3) * 2;
  }
  __device__ __forceinline__ void hide(volatile Tile& tile) {
    const int key = first_key();
    const int at = tile.first + row_ - key, end = tile.keys - 1 - key;
    const int lo = tile.lo, hi = tile.hi;
    hide_behind(softmax_.s, min(at + hi, end), min(at + 8 + hi, end));
    hide_before(softmax_.s, at + lo, at + 8 + lo);
  }

  /// P of a block, and its product with V. Returns what O must be scaled by before it is added; the
  /// left side's has been.
  // NOTE: where the second half raises a reference, the left O has the product of the first half in
  // it already; for the right side that half's P is made again.
  __device__ __forceinline__ Rows weigh(bool first) {
    Rows factor = {1, 1};
    if (rarely(first)) {
      softmax_.raise_reference({}, true);
    } else if (!C::kEarlyPack && rarely(softmax_.too_low({}))) {
      raise({}, factor);
    }
    Rows part = probabilities<0>();
    if (C::kEarlyPack && rarely(softmax_.too_low(part))) {
      raise(part, factor);
      part = probabilities<0>();
    }
    softmax_.add(part);
    output<0>(first);
    part = probabilities<1>();
    if (C::kEarlyPack && rarely(softmax_.too_low(part))) {
      wgmma_wait<0>();
      accumulators_ready(o_);
      raise(part, factor);
      probabilities<0>();
      part = probabilities<1>();
    }
    softmax_.add(part);
    output<1>(first);
    return factor;
  }
  /// P of half of a block's keys, and its sums.
  template <int HALF>
  __device__ __forceinline__ Rows probabilities() {
    constexpr int kFirst = 4 * HALF, kLast = kFirst + 4;
    const Rows part = softmax_.template exponentials<kFirst, kLast>(prob_);
    softmax_.template pack_late<kFirst, kLast>(prob_);
    terms_.template drop<kFirst, kLast>(prob_);
    return part;
  }
  __device__ __forceinline__ void raise(const Rows& part, Rows& factor) {
    softmax_.raise_reference(part, false);
    factor.upper *= softmax_.factor.upper;
    factor.lower *= softmax_.factor.lower;
    scale_rows(o_, softmax_.factor);
  }

  /// Issues the product of a half of P, whose slot of V is that of its number.
  template <int HALF>
  __device__ __forceinline__ void output(bool first) {
    const uint32_t low_v = opaque(low_mn_major(sm_.ring, C::kVBlockBytes));
    mbarrier_wait(opaque(sm_.full_left) + HALF * 8, 1);
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) {
      Wgmma<T, C::kLeft>::template rs<1>(o_, prob_[4 * HALF + kk],
                                         descriptor(low_v + HALF * C::kSlotUnits + kk * kStepMn),
                                         HALF > 0 || kk > 0 || !first);
    }
    wgmma_commit();
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
    const int at = tile.first + row_, row = tile.q_row + at, head = tile.head;
    const Place places[2] = {{row, head, at < tile.queries},
                             {row + 8, head, at + 8 < tile.queries}};
    write_part<C>(p_, o_, places, 0, [&](Weight(&w)[2]) {
      finish_rows<C>(p_, places, softmax_.max, quad_sum(softmax_.sum), w);
      if ((lane_ & 3) == 0) {
        sm_.weights[number_ & 1][row_] = w[0];
        sm_.weights[number_ & 1][row_ + 8] = w[1];
      }
      named_barrier_arrive(kSumsReady + (number_ & 1), 256);
    });
    terms_.leave(tile);
  }

  const Parameters& p_;
  const SplitShared& sm_;
  int t_, lane_, row_;         // row: this thread's upper one in a tile
  int number_ = 0, step_ = 0;  // of tiles, of key blocks
  int block_ = 0, last_ = 0;
  Unmasked unmasked_;
  float o_[C::kLeft / 2];
  uint32_t prob_[kKeys / 16][4];
  ScoreTerms<kKeys, C::kTerms> terms_;
  Softmax<C> softmax_;
};

template <class C>
__device__ __forceinline__ void attend_right(const Parameters& p, const SplitShared& sm) {
  using T = typename C::Element;
  float o[C::kRight / 2];
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
        Wgmma<T, C::kRight>::template ss<0, 1>(
            o, descriptor(low_p + c * 512 + kk * kStepK),
            descriptor(low_v + slot * C::kSlotUnits + kk * kStepMn), c > 0 || kk > 0 || !first);
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
    volatile Tile& tile = sm.tiles[number % kSplitTiles];
    const int at = tile.first + row, place = tile.q_row + at, head = tile.head;
    const Place places[2] = {{place, head, at < tile.queries},
                             {place + 8, head, at + 8 < tile.queries}};
    write_part<C>(p, o, places, C::kLeft, [&](Weight(&w)[2]) {
      named_barrier_sync(kSumsReady + (number & 1), 256);
      w[0] = sm.weights[number & 1][row], w[1] = sm.weights[number & 1][row + 8];
      // NOTE: only now: it frees the weights, the tile and the named barrier for later tiles.
      __syncwarp();
      if (lane == 0) mbarrier_arrive(sm.p_free + buffer * 8);
    });
  }
}

}  // namespace longspan::hopper
