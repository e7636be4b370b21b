// The producer warps of the kernels above 256 columns.
#pragma once

#include "providers/hopper/forward/carry.cuh"
#include "providers/hopper/forward/split_shared.cuh"

namespace longspan::hopper {

/// Warp `me` fills slot `me` of the ring; the first one announces tiles and loads Q as well.
template <class C>
class SplitProducer {
 public:
  __device__ __forceinline__ SplitProducer(const Parameters& p, const SplitShared& sm, int me,
                                           int lane)
      : p_(p), sm_(sm), me_(me), lane_(lane) {}

  __device__ __forceinline__ void run() {
    int unit = blockIdx.x;
    for (int number = 0;; ++number) {
      if (me_ == 0) begin_tile(unit, number);
      mbarrier_wait(sm_.announced, number & 1);
      volatile Tile& tile = sm_.tiles[number % kSplitTiles];
      if (tile.first < 0) return;
      const int last = tile.block_max;
      load_k(tile, tile.block_min, me_);
#pragma unroll 1
      for (int i = tile.block_min; i <= last; ++i) {
        if (me_ == 0 && i == last) unit = draw();
        if (C::kMerges && me_ == 0 && i == carry_block(tile))
          prefetch_carry<C::kRows>(p_, tile, lane_);
        if (me_ < 2) load_v<C::kLeftBlocks>(tile, i, me_, 0, sm_.full_left);
        if (i < last) load_k(tile, i + 1, me_ ^ 2);
        if (me_ >= 2) {
          load_v<C::kRightBlocks>(tile, i, me_ - 2, C::kLeftBlocks, sm_.full_right);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ int draw() const {
    int unit = 0;
    if (lane_ == 0) unit = gridDim.x + atomicInc(p_.counter, p_.units - 1);
    return __shfl_sync(~0u, unit, 0);
  }

  __device__ __forceinline__ void begin_tile(int unit, int number) const {
    mbarrier_wait(sm_.q_empty, (number & 1) ^ 1);
    if (lane_ == 0) {
      volatile Tile& tile = sm_.tiles[number % kSplitTiles];
      if (unit >= p_.units) {
        tile.first = -1;
        mbarrier_arrive(sm_.announced);
        mbarrier_arrive(sm_.q_full);
      } else {
        announce<C>(p_, tile, unit_of<C>(p_, unit));
        mbarrier_arrive(sm_.announced);
        mbarrier_expect_bytes(sm_.q_full, C::kQBytes);
        load_rows(sm_.q, p_.q, sm_.q_full, C::kRows * 128,
                  coordinates_of(p_.q, tile.q_row + tile.first, tile.head), 0, C::kBlocks);
      }
    }
    __syncwarp();
  }

  /// Until this warp's slot is free for its next chunk.
  __device__ __forceinline__ void next_slot() {
    mbarrier_wait(sm_.empty + me_ * 8, (chunks_ & 1) ^ 1);
    ++chunks_;
  }
  __device__ __forceinline__ uint32_t slot() const { return sm_.ring + me_ * C::kSlotBytes; }

  /// A chunk of the columns of a block's keys.
  __device__ __forceinline__ void load_k(volatile Tile& tile, int block, int chunk) {
    next_slot();
    if (lane_ != 0) return;
    const uint32_t bar = sm_.full_left + me_ * 8;
    const int blocks = C::chunk_blocks(chunk), first = C::chunk_first(chunk);
    const Coordinates c = {
        .row = tile.k_row + block * C::kKeys, .head = tile.key_head, .batch = tile.k_batch};
    mbarrier_expect_bytes(bar, blocks * C::kKBlockBytes);
    load_rows(slot(), p_.k, bar, C::kKBlockBytes, c, first, blocks);
  }

  /// BLOCKS blocks of 64 columns, from `first_block` on, of a half of a block's values. What
  /// belongs to no key of the tile is made zeros: probabilities there are 0, but what lies there
  /// may be NaN.
  template <int BLOCKS>
  __device__ __forceinline__ void load_v(volatile Tile& tile, int block, int half, int first_block,
                                         uint32_t full) {
    next_slot();
    const int first = block * C::kKeys + half * 64;
    const int row = tile.v_row + first, keys = max(tile.keys - first, 0);
    const bool tail = keys < 64 && row + keys < p_.v.rows;
    const uint32_t bar = (tail ? sm_.tail : full) + me_ * 8;
    if (lane_ == 0) {
      const Coordinates c = {.row = row, .head = tile.key_head, .batch = tile.v_batch};
      mbarrier_expect_bytes(bar, BLOCKS * C::kVBlockBytes);
      load_rows(slot(), p_.v, bar, C::kVBlockBytes, c, first_block, BLOCKS);
    }
    if (!tail) return;
    mbarrier_wait(bar, tails_++ & 1);
    clear_rows(slot(), BLOCKS, C::kVBlockBytes, keys, lane_);
    if (lane_ == 0) mbarrier_arrive(full + me_ * 8);
  }

  const Parameters& p_;
  const SplitShared& sm_;
  int me_, lane_;
  int chunks_ = 0, tails_ = 0;
};

}  // namespace longspan::hopper
