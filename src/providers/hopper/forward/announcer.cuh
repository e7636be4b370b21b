// Tiles of a block of threads: announced to its other warps, and their Q loaded.
#pragma once

#include "providers/hopper/forward/shared.cuh"

namespace longspan::hopper {

template <class C>
__device__ __forceinline__ void load_q(const Parameters& p, const Shared& sm, int number) {
  volatile Tile& tile = sm.tiles[number & 1];
  const int buffer = buffer_of<C>(number);
  const uint32_t bar = sm.q_full + buffer * 8;
  mbarrier_expect_bytes(bar, C::kQBytes);
  const int head = tile.head, row = tile.q_row + tile.first;
#pragma unroll 1
  for (int g = 0; g < C::kGroups; ++g) {
    load_rows(sm.q + buffer * C::kQBytes + g * C::kQGroupBytes, p.q, bar, 8192,
              coordinates_of(p.q, row + g * queries_of_warpgroup<C>(p), head), 0, C::kColumnBlocks);
  }
}

/// After the last tile. Once its buffer is free, as for a tile.
template <class C>
__device__ __forceinline__ void announce_end(const Shared& sm, int number) {
  mbarrier_wait(sm.q_empty + buffer_of<C>(number) * 8, phase_of<C>(number) ^ 1);
  sm.tiles[number & 1].first = -1;
  mbarrier_arrive(sm.q_full + buffer_of<C>(number) * 8);
}

/// Of kernels with C::kAnnounces: one thread draws units and announces their tiles, each while the
/// last key blocks of the one before are loaded, so that a tile's start waits for neither counter
/// nor Q. Short tiles feel it most.
template <class C>
__device__ __forceinline__ void announce_tiles(const Parameters& p, const Shared& sm) {
  int number = 0;
#pragma unroll 1
  for (int unit = blockIdx.x; unit < p.units; ++number) {
    mbarrier_wait(sm.q_empty + buffer_of<C>(number) * 8, phase_of<C>(number) ^ 1);
    announce<C>(p, sm.tiles[number & 1], unit_of<C>(p, unit));
    begin_blocks<C>(p, sm, number);
    load_q<C>(p, sm, number);
    mbarrier_arrive(tile_announced(sm));
    mbarrier_wait(tile_due(sm), number & 1);
    unit = gridDim.x + atomicInc(p.counter, p.units - 1);
  }
  announce_end<C>(sm, number);
  mbarrier_arrive(tile_announced(sm));
}

}  // namespace longspan::hopper
