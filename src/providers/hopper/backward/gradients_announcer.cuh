// The thread that draws tiles of gradients and announces them.
#pragma once

#include "providers/hopper/backward/gradients_shared.cuh"
#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/ptx/dependency.cuh"

namespace longspan::hopper {

/// Says what the next tile is. Counter and lists lie in global memory: the way there is not the
/// loader's.
template <class C>
class GradientAnnouncer {
 public:
  __device__ __forceinline__ GradientAnnouncer(const GradientParameters& p,
                                               const GradientShared& sm)
      : p_(p), sm_(sm) {}

  __device__ __forceinline__ void run() {
    for (int unit = blockIdx.x; unit < p_.units; unit = draw()) {
      const GradientItem& item = p_.items[unit];
      if (p_.only_key_head >= 0 && key_head_of(item) != p_.only_key_head) continue;
      announce(item, p_.chunk.regions[item.region]);
      bounded_wait(sm_.draw, number_ - 1 & 1);
    }
    const int slot = take_slot();
    sm_.tiles[slot].steps = -1;
    mbarrier_arrive(sm_.tile_full + slot * 8);
  }

 private:
  /// The counter is that of the kernel before until it has ended.
  __device__ __forceinline__ int draw() const {
    await_previous();
    return gridDim.x + atomicInc(p_.counter, p_.units - 1);
  }

  __device__ __forceinline__ int take_slot() {
    const int slot = number_ & (C::kTiles - 1);
    bounded_wait(sm_.tile_empty + slot * 8, (number_ / C::kTiles & 1) ^ 1);
    ++number_;
    return slot;
  }

  __device__ __forceinline__ void announce(const GradientItem& item, const Region& region) {
    const bool queries = item.gradient == Gradient::kDq;
    const int first = item.tile * kGradientRows;
    const int slot = take_slot();
    volatile GradientTile& tile = sm_.tiles[slot];
    tile.steps = (item.last - item.first) * (item.last_head - item.first_head);
    tile.gradient = static_cast<int>(item.gradient);
    tile.row = (queries ? region.q_row : region.k_row) + first;
    tile.rows = (queries ? region.queries : region.keys) - first;
    tile.head = item.head + (queries ? p_.chunk.first_head : p_.chunk.first_key_head);
    tile.column = item.part * C::kColumns;
    tile.adds = item.adds;
    tile.ends = item.ends;
    tile.tile = item.tile;
    tile.first = item.first;
    tile.last = item.last;
    tile.first_head = item.first_head;
    tile.last_head = item.last_head;
    tile.window = item.window;
    tile.start = item.start;
    tile.stride = item.up ? 1 : -1;
    tile.other_row = queries ? region.k_row : region.q_row;
    tile.other_rows = queries ? region.keys : region.queries;
    tile.line = region.line;
    mbarrier_arrive(sm_.tile_full + slot * 8);
  }

  __device__ __forceinline__ int key_head_of(const GradientItem& item) const {
    if (item.gradient != Gradient::kDq) return item.head;
    return p_.chunk.key_head(p_.chunk.first_head + item.head) - p_.chunk.first_key_head;
  }

  const GradientParameters& p_;
  const GradientShared& sm_;
  int number_ = 0;
};

}  // namespace longspan::hopper
