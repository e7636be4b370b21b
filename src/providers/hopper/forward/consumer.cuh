// A consumer warpgroup: scores, softmax and output of 64 queries, tile after tile.
//
// A step issues S' = Q K^T of the next key block, then O += P V of this one, and runs the softmax
// of S' while the latter, and the other warpgroups' products, run. There is no bubble between tiles
// where Q has two buffers: S' is then that of the next tile's first block.
#pragma once

#include "providers/hopper/forward/results.cuh"
#include "providers/hopper/forward/shared.cuh"
#include "providers/hopper/forward/softmax.cuh"
#include "providers/hopper/forward/terms.cuh"

namespace longspan::hopper {

constexpr int kTurn = 1;  // named barrier of the first warpgroup's turn

template <class C>
class Consumer {
 public:
  using T = typename C::Element;
  using Probabilities = typename Softmax<C>::Probabilities;
  static constexpr int kKeys = C::kKeys;

  __device__ __forceinline__ Consumer(const Parameters& p, const Shared& sm, int group)
      : p_(p),
        sm_(sm),
        group_(group),
        row_(group * queries_of_warpgroup<C>(p) + warp_of_head() * 16 + (threadIdx.x & 31) / 4),
        terms_(p, row_),
        softmax_(terms_.scale()) {}

  __device__ __forceinline__ void run() {
    Probabilities prob_a;
    [[maybe_unused]] Probabilities prob_b;
    if (C::kPingPong && group_ == C::kGroups - 1) named_barrier_arrive(kTurn, 256);
    while (start_tile()) {
      first_scores(prob_a);
      if constexpr (!C::kEarlyPack) {
        while (run_step(prob_a, prob_a)) {
        }
        last_output(prob_a);
      } else {
        while (true) {
          if (!run_step(prob_a, prob_b)) {
            last_output(prob_a);
            break;
          }
          if (!run_step(prob_b, prob_a)) {
            last_output(prob_b);
            break;
          }
        }
      }
      finish(tile_, softmax_.max, softmax_.sum);
      if (C::kQBuffers == 2) break;
      ++tile_;
    }
  }

 private:
  /// False where there are no more tiles.
  __device__ __forceinline__ bool start_tile() {
    terms_.leave(sm_.tiles[(tile_ - 1) & 1]);
    mbarrier_wait(sm_.q_full + buffer_of<C>(tile_) * 8, phase_of<C>(tile_));
    volatile Tile& tile = this_tile();
    const int first = tile.first;
    if (first < 0) return false;
    block_ = first_block<C>(sm_, tile_);
    lowest_block_ = tile.block_min, last_block_ = tile.block_max;
    left_ = last_block_ - lowest_block_;
    const int queries = queries_of_warpgroup<C>(p_);
    unmasked_ = unmasked_blocks<kKeys>(tile, first + group_ * queries, queries);
    return true;
  }

  __device__ __forceinline__ void first_scores(Probabilities& prob) {
    softmax_.begin();
    wait_k();
    issue_scores();
    terms_.draw(this_tile(), first_key());
    wgmma_wait<0>();
    accumulators_ready(softmax_.s);
    release_k();
    finish_scores();
    softmax_.run(prob, true);
    softmax_.pack_late(prob);
    terms_.template drop<0, kKeys / 16>(prob);
    fresh_ = 1;
  }

  /// Scores of the next block, P V of this one, softmax. False when there is no next block (of the
  /// tile where Q has one buffer, at all where it has two); `prob` then still waits for its P V.
  __device__ __forceinline__ bool run_step(Probabilities& prob, Probabilities& next_prob) {
    const bool last = left_ == 0;
    Rows old_max, old_sum;
    if (rarely(last)) {
      if (C::kQBuffers == 1) return false;
      ++tile_;
      if (!start_tile()) {
        --tile_;
        return false;
      }
      old_max = softmax_.max, old_sum = softmax_.sum;
      softmax_.begin();
    } else {
      --left_;
      next_block();
    }
    wait_k();
    if (C::kPingPong) named_barrier_sync(kTurn + group_, 256);
    issue_scores();
    if (C::kEarlyPack) {  // the last P V may still be open
      wgmma_wait<1>();
      accumulators_ready(o_);
      if (!fresh_) release_v(2);
    }
    if (rarely(softmax_.grown)) scale_rows(o_, softmax_.factor);
    issue_output(prob, 1);
    if (C::kPingPong) {
      named_barrier_arrive(kTurn + (group_ + 1 == C::kGroups ? 0 : group_ + 1), 256);
    }
    terms_.draw(this_tile(), first_key());
    wgmma_wait<1>();
    accumulators_ready(softmax_.s);
    release_k();
    finish_scores();
    softmax_.run(next_prob, last);
    if (!C::kEarlyPack) {
      wait_v(1);  // NOTE: long over; its branch keeps ptxas from moving the wait below up here
      wgmma_wait<0>();
      accumulators_ready(o_);
      release_v(1);
      softmax_.pack_late(next_prob);
    }
    terms_.template drop<0, kKeys / 16>(next_prob);
    if (rarely(last)) {
      if (C::kEarlyPack) {
        wgmma_wait<0>();
        accumulators_ready(o_);
        release_v(1);
      }
      finish(tile_ - 1, old_max, old_sum);
    }
    fresh_ = last;
    return true;
  }

  __device__ __forceinline__ void last_output(const Probabilities& prob) {
    if (C::kEarlyPack) {
      wgmma_wait<0>();
      accumulators_ready(o_);
      if (!fresh_) release_v(1);
    }
    if (rarely(softmax_.grown)) scale_rows(o_, softmax_.factor);
    issue_output(prob, 0);
    wgmma_wait<0>();
    accumulators_ready(o_);
    release_v(0);
  }

  // NOTE: every step begins with it, so it has no branch and reads no shared memory.
  __device__ __forceinline__ void next_block() {
    block_ = C::kTurns && block_ == last_block_ ? lowest_block_ : block_ + 1;
  }
  __device__ __forceinline__ void wait_k() const {
    mbarrier_wait(opaque(sm_.k_full) + (step_ & 1) * 8, step_ >> 1 & 1);
  }
  /// The caller commits nothing else before its wait.
  __device__ __forceinline__ void issue_scores() {
    accumulators_dead(softmax_.s);
    const uint32_t low_q = opaque(low_k_major(sm_.q)) + buffer_of<C>(tile_) * (C::kQBytes / 16) +
                           group_ * (C::kQGroupBytes / 16);
    const uint32_t low_k = opaque(low_k_major(sm_.k)) + (step_ & 1) * (C::kStageBytes / 16);
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < C::kDim / 16; ++kk) {
      Wgmma<T, kKeys>::template ss<0, 0>(
          softmax_.s, descriptor(low_q + kk / 4 * 512 + kk % 4 * kStepK),
          descriptor(low_k + kk / 4 * (C::kKeyBlockBytes / 16) + kk % 4 * kStepK), kk > 0);
    }
    wgmma_commit();
    ++step_;
  }
  // V of the block whose scores were issued last (`behind` = 0), or of one before it.
  __device__ __forceinline__ void wait_v(int behind) const {
    const int index = step_ - 1 - behind;
    mbarrier_wait(opaque(sm_.v_full) + (index & 1) * 8, index >> 1 & 1);
  }
  __device__ __forceinline__ void issue_output(const Probabilities& prob, int behind) {
    const int index = step_ - 1 - behind;
    const uint32_t low_v =
        opaque(low_mn_major(sm_.v, C::kKeyBlockBytes)) + (index & 1) * (C::kStageBytesV / 16);
    wait_v(behind);
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < kKeys / 16; ++kk) {
      Wgmma<T, C::kDimV>::template rs<1>(o_, prob[kk], descriptor(low_v + kk * kStepMn),
                                         kk > 0 || !fresh_);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ int warp() const { return (threadIdx.x & 127) / 32; }
  __device__ __forceinline__ int warp_of_head() const {
    return warp() & ((4 >> heads_log2<C>(p_)) - 1);
  }
  __device__ __forceinline__ bool leads() const { return (threadIdx.x & 127) == 0; }
  __device__ __forceinline__ void release_k() const {
    if (leads()) mbarrier_arrive(opaque(sm_.k_empty) + ((step_ - 1) & 1) * 8);
    if (C::kDirect && left_ == 0 && leads()) mbarrier_arrive(sm_.q_empty);
  }
  __device__ __forceinline__ void release_v(int behind) const {
    if (leads()) mbarrier_arrive(opaque(sm_.v_empty) + ((step_ - 1 - behind) & 1) * 8);
  }

  __device__ __forceinline__ volatile Tile& this_tile() const { return sm_.tiles[tile_ & 1]; }
  __device__ __forceinline__ int first_key() const {  // of this thread's columns of the block
    return block_ * kKeys + (threadIdx.x & 3) * 2;
  }
  __device__ __forceinline__ void finish_scores() {
    terms_.apply(this_tile(), first_key(), softmax_.s);
    if (rarely(!unmasked_.holds(block_))) hide();
    terms_.observe(this_tile(), softmax_.s);
  }
  __device__ __forceinline__ void hide() {
    volatile Tile& tile = this_tile();
    const int key = first_key();
    const int at = tile.first + row_ - key, end = tile.keys - 1 - key;
    const int lo = tile.lo, hi = tile.hi;
    if constexpr (C::kShares) {
      const int last = columns_before(at + hi + 1), stop = columns_before(end + 1);
      hide_but(softmax_.s, columns_before(at + lo), min(last, stop), min(last + 2, stop));
      return;
    }
    hide_behind(softmax_.s, min(at + hi, end), min(at + 8 + hi, end));
    if (block_ < unmasked_.first) hide_before(softmax_.s, at + lo, at + 8 + lo);
  }

  /// Stores O and LSE of tile number `number`.
  __device__ __forceinline__ void finish(int number, Rows max, Rows sum) {
    volatile Tile& tile = sm_.tiles[number & 1];
    const int at = tile.first + row_, queries = tile.queries;
    const int row = tile.q_row + at, head = tile.head + (warp() >> (2 - heads_log2<C>(p_)));
    const Place places[2] = {{row, head, at < queries}, {row + 8, head, at + 8 < queries}};
    const auto weigh = [&](Weight(&w)[2]) { finish_rows<C>(p_, places, max, quad_sum(sum), w); };
    if constexpr (C::kMerges || C::kDirect) {
      write_part<C>(p_, o_, places, 0, weigh);
    } else {
      Weight w[2];
      weigh(w);
      scale_rows(o_, {w[0].mine, w[1].mine});
      stage_rows<T>(opaque(sm_.q) + buffer_of<C>(number) * C::kQBytes + group_ * C::kQGroupBytes +
                        warp() * 16 * 128,
                    o_);
    }
    if constexpr (!C::kDirect) {
      __syncwarp();
      if ((threadIdx.x & 31) == 0) mbarrier_arrive(sm_.o_full + buffer_of<C>(number) * 8);
    }
  }

  const Parameters& p_;
  const Shared& sm_;
  int group_;
  int row_;  // this thread's upper query in a tile
  float o_[C::kDimV / 2];
  ScoreTerms<kKeys, C::kTerms> terms_;
  Softmax<C> softmax_;
  int tile_ = 0, step_ = 0, fresh_ = 0;  // step: S blocks issued; fresh: P is a tile's first
  int block_, left_;                     // the block of S; blocks left after it
  int lowest_block_, last_block_;        // in the order of keys, of the tile
  Unmasked unmasked_;                    // blocks that hide nothing from this warpgroup
};

}  // namespace longspan::hopper
