// What the warps of a block share: stages, barriers, the tiles that they work on.
#pragma once

#include <cstdint>

#include "providers/hopper/forward/tiles.cuh"
#include "providers/hopper/ptx/mbarrier.cuh"

namespace longspan::hopper {

/// V rows that are no keys of the tile, to be made zeros.
struct Tail {
  int32_t slot;  // of the V stage; negative: there are no more
  int32_t valid;
};

/// Addresses of shared memory. Of the barriers but those of tails there are two each.
struct Shared {
  uint32_t q, k, v;
  uint32_t k_full, k_empty, v_full, v_empty, q_full, q_empty, o_full;
  uint32_t tail_full, tail_empty;
  uint32_t carry_due;    // two, of merged results; else see tile_due()
  volatile Tile* tiles;  // [2], by the parity of the tile's number
  volatile Tail* tail;
  volatile int* first_blocks = nullptr;  // as tiles; of kernels with C::kTurns
};
constexpr int kBarriers = 16, kMoreBarriers = 2;

template <class C>
__device__ __forceinline__ Shared make_shared(const char* stages, const uint64_t* barriers,
                                              Tile* tiles, Tail* tail) {
  Shared sm;
  sm.q = (shared_address(stages) + 1023) & ~1023u;
  sm.k = sm.q + C::kQBuffers * C::kQBytes;
  sm.v = sm.k + 2 * C::kStageBytes;
  sm.k_full = shared_address(barriers);
  sm.k_empty = sm.k_full + 16;
  sm.v_full = sm.k_full + 32;
  sm.v_empty = sm.k_full + 48;
  sm.q_full = sm.k_full + 64;
  sm.q_empty = sm.k_full + 80;
  sm.o_full = sm.k_full + 96;
  sm.tail_full = sm.k_full + 112;
  sm.tail_empty = sm.k_full + 120;
  sm.carry_due = sm.k_full + 128;
  sm.tiles = tiles;
  sm.tail = tail;
  return sm;
}

template <class C>
__device__ __forceinline__ void init_barriers(const Shared& sm) {
  for (int i = 0; i < 2; ++i) {
    mbarrier_init(sm.k_full + i * 8, 1);
    mbarrier_init(sm.k_empty + i * 8, C::kGroups);
    mbarrier_init(sm.v_full + i * 8, 1);
    mbarrier_init(sm.v_empty + i * 8, C::kGroups);
    mbarrier_init(sm.q_full + i * 8, 1);
    mbarrier_init(sm.q_empty + i * 8, (C::kDirect ? C::kGroups : 1) + C::kMerges);
    if (C::kMerges || C::kAnnounces) mbarrier_init(sm.carry_due + i * 8, 1);
    mbarrier_init(sm.o_full + i * 8, 4 * C::kGroups);  // one arrival of each warp
  }
  mbarrier_init(sm.tail_full, 1);
  mbarrier_init(sm.tail_empty, 1);
  mbarrier_init_fence();
}

/// Of kernels with C::kAnnounces, a barrier each: the next tile is to be announced, and it has
/// been.
__device__ __forceinline__ uint32_t tile_due(const Shared& sm) { return sm.carry_due; }
__device__ __forceinline__ uint32_t tile_announced(const Shared& sm) { return sm.carry_due + 8; }

/// The key block with which tile `number` begins.
template <class C>
__device__ __forceinline__ int first_block(const Shared& sm, int number) {
  if constexpr (C::kTurns) return sm.first_blocks[number & 1];
  return sm.tiles[number & 1].block_min;
}

/// Of kernels whose heads share blocks: tile `number` begins at the last key block with first keys
/// of queries. What comes before it is seen by some queries only; were it first, nothing would
/// refer to the others' scores, whose softmax then is computed twice in the next block.
template <class C>
__device__ __forceinline__ void begin_blocks(const Parameters& p, const Shared& sm, int number) {
  volatile Tile& tile = sm.tiles[number & 1];
  const int first = tile.first, queries = C::kRows >> heads_log2<C>(p);
  const int last = min(first + queries, tile.queries) - 1;
  const int block = max((last + tile.lo) / C::kKeys, tile.block_min);
  const bool seen = block <= tile.block_max && block * C::kKeys <= first + tile.hi;
  sm.first_blocks[number & 1] = seen ? block : tile.block_min;
}

/// The Q buffer of a tile, and the phase of its barriers.
template <class C>
__device__ __forceinline__ int buffer_of(int tile) {
  return C::kQBuffers == 2 ? tile & 1 : 0;
}
template <class C>
__device__ __forceinline__ int phase_of(int tile) {
  return C::kQBuffers == 2 ? tile >> 1 & 1 : tile & 1;
}

}  // namespace longspan::hopper
