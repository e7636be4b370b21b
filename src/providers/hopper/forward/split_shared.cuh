// The forward kernels above 256 columns: a block computes 64 queries, and two warpgroups share O,
// which with 512 columns in FP32 is half of the registers of a multiprocessor.
//   left      scores, softmax, the left columns of O with P from registers, P to shared memory
//   right     the right columns of O with P from shared memory
//   producer  an issuing warp for each slot of the ring
// A ring of four slots holds chunks of K (128 keys x up to 128 columns) and V (64 keys x the
// columns of a side), for each key block in this order: V left in slots 0 and 1, K of the next
// block in 2, 3, 0, 1, V right in 2 and 3. A tile's first K takes 0, 1, 2, 3.
#pragma once

#include <cstdint>

#include "providers/hopper/forward/results.cuh"
#include "providers/hopper/forward/tiles.cuh"
#include "providers/hopper/ptx/mbarrier.cuh"
#include "providers/hopper/ptx/wgmma.cuh"

namespace longspan::hopper {

/// DIM: columns of Q, K, V and O, a multiple of 64 above 256.
template <class T, int DIM, bool MERGES, bool TERMS>
struct SplitConfig {
  using Element = T;
  static constexpr bool kMerges = MERGES, kTerms = TERMS, kShares = false;
  static constexpr bool kEarlyPack = !TERMS;  // terms leave no registers for keeping S beside P
  static constexpr int kDim = DIM, kRows = 64, kKeys = 128, kSlots = 4, kThreads = 384;
  // Blocks of 64 columns. The left side has less of O, since it has the scores.
  static constexpr int kBlocks = DIM / 64, kLeftBlocks = kBlocks / 2;
  static constexpr int kRightBlocks = kBlocks - kLeftBlocks;
  static constexpr int kLeft = kLeftBlocks * 64, kRight = kRightBlocks * 64;
  // Blocks of a box of TMA.
  static constexpr int kKBox = kBlocks % 4 == 0 ? kBlocks / 4 : 1;
  static constexpr int kVBox = kLeft == kRight ? kLeftBlocks : 1;
  /// Chunk `c` of four of the columns of K: where it begins, and how many blocks it has.
  static constexpr LONGSPAN_HOST_DEVICE int chunk_first(int c) {
    return c * (kBlocks / 4) + (c < kBlocks % 4 ? c : kBlocks % 4);
  }
  static constexpr LONGSPAN_HOST_DEVICE int chunk_blocks(int c) {
    return chunk_first(c + 1) - chunk_first(c);
  }
  static constexpr int kSlotBytes = 32768, kSlotUnits = kSlotBytes / 16;  // of a descriptor
  static constexpr int kQBytes = kRows * kDim * 2, kPBytes = kRows * kKeys * 2;
  static constexpr int kVBlockBytes = 64 * 128;   // of a V chunk: 64 columns
  static constexpr int kKBlockBytes = 128 * 128;  // of a K chunk: 64 columns
  static constexpr int kSharedBytes = kQBytes + kSlots * kSlotBytes + 2 * kPBytes + 1024;
  static_assert(DIM % 64 == 0 && DIM > 256 && DIM <= 512);
  // NOTE: ptxas gives each branch its own limit; evenly shared, products wait for each other.
  static constexpr int kLeftRegisters = 256, kRightRegisters = 184, kProducerRegisters = 56;
  static constexpr int kCarryBatch = 4;  // as Config's
};

/// What the left warpgroup says of a P buffer.
struct Announced {
  int32_t tile;         // its number; negative: there are no more
  int32_t first, last;  // whether it is that of a tile's first, and last, key block
};

/// How many tiles may be announced before the first of them is done with.
constexpr int kSplitTiles = 4;

/// Addresses of shared memory; barriers of each slot, and of each P buffer.
// NOTE: a slot that both warpgroups read has a `full` barrier for each, since a waiter must see
// every phase of its barrier.
struct SplitShared {
  uint32_t q, ring, p;
  uint32_t full_left, full_right, empty, tail;
  uint32_t q_full, q_empty, announced, p_full, p_free;
  volatile Tile* tiles;       // [kSplitTiles], by their numbers
  volatile Announced* parts;  // [2], by P buffer
  float (*factors)[64];       // [2], by P buffer: what O is scaled by before P V is added
  Weight (*weights)[64];      // [2], by the parity of the tile's number
};
constexpr int kSplitBarriers = 4 * 4 + 3 + 4;
enum SplitNamedBarrier { kLeftOnly = 1, kSumsReady = 2 };  // the latter + parity of the tile

template <class C>
__device__ __forceinline__ void init_barriers(const SplitShared& sm) {
  for (int i = 0; i < kSplitBarriers - 2; ++i) mbarrier_init(sm.full_left + i * 8, 1);
  for (int i = 0; i < 2; ++i) mbarrier_init(sm.p_free + i * 8, 4);  // one arrival of each warp
  mbarrier_init_fence();
}

template <class C>
__device__ __forceinline__ SplitShared make_shared(const char* stages, const uint64_t* barriers) {
  SplitShared sm;
  sm.q = (shared_address(stages) + 1023) & ~1023u;
  sm.ring = sm.q + C::kQBytes;
  sm.p = sm.ring + C::kSlots * C::kSlotBytes;
  sm.full_left = shared_address(barriers);
  sm.full_right = sm.full_left + 32;
  sm.empty = sm.full_right + 32;
  sm.tail = sm.empty + 32;
  sm.q_full = sm.tail + 32;
  sm.q_empty = sm.q_full + 8;
  sm.announced = sm.q_empty + 8;
  sm.p_full = sm.announced + 8;
  sm.p_free = sm.p_full + 16;
  return sm;
}

}  // namespace longspan::hopper
