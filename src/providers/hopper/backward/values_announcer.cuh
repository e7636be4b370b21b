// The thread that draws walks and announces them.
#pragma once

#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/backward/values_shared.cuh"

namespace longspan::hopper {

template <class C>
class ValueAnnouncer {
 public:
  __device__ __forceinline__ ValueAnnouncer(const ValueParameters& p, const ValueShared& sm)
      : p_(p), sm_(sm) {}

  __device__ __forceinline__ void run() {
    for (int unit = blockIdx.x; unit < p_.units; unit = draw()) {
      const GradientItem& item = p_.items[unit];
      if (p_.only_key_head >= 0 && item.head != p_.only_key_head) continue;
      announce(item, p_.chunk.regions[item.region]);
      bounded_wait(sm_.draw, number_ - 1 & 1);
    }
    const int slot = take_slot();
    sm_.walks[slot].steps = -1;
    mbarrier_arrive(sm_.walk_full + slot * 8);
  }

 private:
  __device__ __forceinline__ int draw() const {
    return gridDim.x + atomicInc(p_.counter, p_.units - 1);
  }

  __device__ __forceinline__ int take_slot() {
    const int slot = number_ & (C::kWalks - 1);
    bounded_wait(sm_.walk_empty + slot * 8, (number_ / C::kWalks & 1) ^ 1);
    ++number_;
    return slot;
  }

  __device__ __forceinline__ void announce(const GradientItem& item, const Region& region) {
    constexpr int kBlocks = kUnitQueries / kBlockSide;
    const int first_key = item.tile * kGradientRows;
    const int slot = take_slot();
    volatile ValueWalk& walk = sm_.walks[slot];
    const int first = item.first / kBlocks, last = (item.last + kBlocks - 1) / kBlocks;
    walk.steps = (last - first) * (item.last_head - item.first_head);
    walk.row = region.k_row + first_key;
    walk.rows = region.keys - first_key;
    walk.head = item.head + p_.chunk.first_key_head;
    walk.adds = item.adds;
    walk.ends = item.ends;
    walk.turn = item.turn;
    walk.sum_part = item.sum_part;
    walk.sum_parts = item.sum_parts;
    walk.tile = item.tile;
    walk.first_line = first;
    walk.last_line = last;
    walk.first_head = item.first_head;
    walk.last_head = item.last_head;
    walk.q_row = region.q_row;
    walk.queries = region.queries;
    walk.lo = region.lo - first_key;
    walk.hi = region.hi - first_key;
    walk.line = region.line;
    mbarrier_arrive(sm_.walk_full + slot * 8);
  }

  const ValueParameters& p_;
  const ValueShared& sm_;
  int number_ = 0;
};

}  // namespace longspan::hopper
