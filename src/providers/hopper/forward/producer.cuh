// The producer warpgroup: one thread loads Q, K and V, a warp stores O, a warp zeroes rows of V.
#pragma once

#include <type_traits>

#include "providers/hopper/forward/announcer.cuh"
#include "providers/hopper/forward/carry.cuh"
#include "providers/hopper/forward/keys.cuh"
#include "providers/hopper/forward/shared.cuh"
#include "providers/hopper/ptx/wgmma.cuh"

namespace longspan::hopper {

template <class C>
class Producer {
 public:
  using Keys = std::conditional_t<C::kPulls, PulledKeys<C>,
                                  std::conditional_t<C::kShares, KeysInTurn<C>, KeysInPlace<C>>>;

  __device__ __forceinline__ Producer(const Parameters& p, const Shared& sm)
      : p_(p), sm_(sm), keys_(p, sm) {}

  __device__ __forceinline__ void run() {
    if constexpr (C::kAnnounces) {
      for (int tile = 0; announced(tile); ++tile) load_keys(tile);
    } else {
      load_tiles();
    }
    load_v(step_ - 1);
    next_tail({-1, 0});
    mbarrier_arrive(sm_.tail_full);
    keys_.end();
  }

 private:
  __device__ __forceinline__ bool announced(int tile) const {
    mbarrier_wait(tile_announced(sm_), tile & 1);
    return sm_.tiles[tile & 1].first >= 0;
  }
  __device__ __forceinline__ void load_tiles() {
    int tile = 0;
    for (int unit = blockIdx.x; unit < p_.units; ++tile) {
      const Unit next = unit_of<C>(p_, unit);
      keys_.expect(next);
      mbarrier_wait(sm_.q_empty + buffer_of<C>(tile) * 8, phase_of<C>(tile) ^ 1);
      announce<C>(p_, sm_.tiles[tile & 1], next);
      keys_.begin(tile);
      load_q<C>(p_, sm_, tile);
      unit = load_keys(tile);
    }
    announce_end<C>(sm_, tile);
    if (C::kMerges) mbarrier_arrive(sm_.carry_due + buffer_of<C>(tile) * 8);
  }

  /// Loads K and V of a tile, V one block behind K. Returns the unit to go on with.
  // NOTE: it is drawn late, so that a block does not commit itself a whole tile ahead.
  __device__ __forceinline__ int load_keys(int number) {
    volatile Tile& tile = sm_.tiles[number & 1];
    const int first = tile.block_min, last = tile.block_max;
    int unit = 0, i = keys_.first(number, first);
#pragma unroll 1
    for (int n = first; n <= last; ++n) {
      if constexpr (C::kAnnounces) {
        if (n == max(first, last - kBlocksAhead)) mbarrier_arrive(tile_due(sm_));
      } else {
        if (n == last) unit = gridDim.x + atomicInc(p_.counter, p_.units - 1);
      }
      if (C::kMerges && n == carry_block(tile)) {
        mbarrier_arrive(sm_.carry_due + buffer_of<C>(number) * 8);
      }
      const int own = keys_.find(number, i);
      const uint32_t slot = opaque(step_ & 1), bar = sm_.k_full + slot * 8;
      mbarrier_wait(bar + (sm_.k_empty - sm_.k_full), ((step_ >> 1) & 1) ^ 1);
      mbarrier_expect_bytes(bar, C::kStageBytes);
      load_rows(sm_.k + slot * C::kStageBytes, keys_.k(own), bar, C::kKeyBlockBytes,
                {.row = own < 0 ? tile.k_row + i * C::kKeys : own,
                 .head = tile.key_head,
                 .batch = tile.k_batch},
                0, C::kColumnBlocks);
      ++step_;
      load_v(step_ - 2);
      v_block_ = i;
      v_tile_ = number & 1;
      v_own_ = own;
      i = keys_.next(number, i, last);
    }
    if (C::kQBuffers == 1) load_v(step_ - 1);
    return unit;
  }

  /// Loads the V block that waits, as number `index`.
  __device__ __forceinline__ void load_v(int index) {
    if (v_block_ < 0) return;
    const uint32_t slot = opaque(index & 1), full = sm_.v_full + slot * 8;
    mbarrier_wait(full + (sm_.v_empty - sm_.v_full), ((index >> 1) & 1) ^ 1);
    volatile Tile& tile = sm_.tiles[v_tile_];
    const Mapped& v = keys_.v(v_own_);
    const int first = v_block_ * C::kKeys, keys = tile.keys - first;
    const int row = v_own_ < 0 ? tile.v_row + first : v_own_;
    // Behind the tensor's last row TMA writes zeros.
    const bool tail = keys < C::kKeys && row + keys < v.rows;
    if (tail) next_tail({static_cast<int>(slot), keys});
    const uint32_t bar = tail ? sm_.tail_full : full;
    mbarrier_expect_bytes(bar, C::kStageBytesV);
    load_rows(sm_.v + slot * C::kStageBytesV, v, bar, C::kKeyBlockBytes,
              {.row = row, .head = tile.key_head, .batch = tile.v_batch}, 0, C::kColumnBlocksV);
    v_block_ = -1;
  }

  __device__ __forceinline__ void next_tail(const Tail& tail) {
    mbarrier_wait(sm_.tail_empty, (tails_ & 1) ^ 1);
    sm_.tail->slot = tail.slot;
    sm_.tail->valid = tail.valid;
    ++tails_;
  }

  static constexpr int kBlocksAhead = 3;  // take about as long as a draw and a load

  const Parameters& p_;
  const Shared& sm_;
  Keys keys_;
  int step_ = 0;                   // K blocks loaded
  int v_block_ = -1, v_tile_ = 0;  // the V block still to load, of that tile; negative: none
  int v_own_ = kInTile;            // where it lies
  int tails_ = 0;
};

/// Zeroes what V stages hold beyond the keys of their tile, and passes them on. Probabilities there
/// are 0, but what lies there may be NaN.
template <class C>
__device__ __forceinline__ void clear_tails(const Shared& sm, int lane) {
  for (int number = 0;; ++number) {
    mbarrier_wait(sm.tail_full, number & 1);
    const int slot = sm.tail->slot, valid = sm.tail->valid;
    if (slot < 0) return;
    clear_rows(sm.v + slot * C::kStageBytesV, C::kColumnBlocksV, C::kKeyBlockBytes, valid, lane);
    if (lane == 0) {
      mbarrier_arrive(sm.v_full + slot * 8);
      mbarrier_arrive(sm.tail_empty);
    }
  }
}

}  // namespace longspan::hopper
