// What the warps of a block share while they sum gradients.
#pragma once

#include <cstdint>

#include "providers/hopper/backward/layout.h"
#include "providers/hopper/ptx/bounded_wait.cuh"

namespace longspan::hopper {

/// 128 rows x COLUMNS of a gradient, in steps of 64 rows of the other side.
template <class T, int COLUMNS>
struct GradientConfig {
  using Element = T;
  static constexpr int kColumns = COLUMNS, kColumnBlocks = COLUMNS / 64;
  static constexpr int kStages = 4;
  static constexpr int kScoreBytes = 2 * kBlockBytes;  // of P or dS: one block a warpgroup
  static constexpr int kRowBytes = kColumnBlocks * kBlockBytes;
  static constexpr int kStageBytes = kScoreBytes + kRowBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;
  static constexpr int kThreads = 384;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
  static_assert(COLUMNS % 64 == 0 && COLUMNS <= 256);
  static_assert(2 * kConsumerRegisters + kProducerRegisters <= kBlockRegisters);
  static_assert(kSharedBytes + 512 <= 232448, "more than a block of sm_90 may have");
};

/// Rows of a gradient, as the producer announces them.
struct GradientTile {
  int32_t steps;  // negative: there are no more tiles
  int32_t gradient;
  int32_t row;   // of the view
  int32_t rows;  // from it to the region's last, maybe more than the tile has
  int32_t head;  // of the view
  int32_t column;
  int32_t adds, ends;
};

/// Rows that are not the tile's, to be made zeros.
struct Surplus {
  int32_t stage;  // negative: there are no more
  int32_t valid;
};

/// Addresses of shared memory.
struct GradientShared {
  uint32_t stages;
  uint32_t full, empty;            // a barrier for each stage
  uint32_t tile_full, tile_empty;  // for each of two tiles
  uint32_t surplus_full, surplus_empty;
  volatile GradientTile* tiles;  // [2], by the parity of the tile's number
  volatile Surplus* surplus;
};
constexpr int kGradientBarriers = 14;

template <class C>
__device__ __forceinline__ GradientShared make_gradient_shared(const char* stages,
                                                               const uint64_t* barriers,
                                                               GradientTile* tiles,
                                                               Surplus* surplus) {
  GradientShared sm;
  sm.stages = (shared_address(stages) + 1023) & ~1023u;
  sm.full = shared_address(barriers);
  sm.empty = sm.full + C::kStages * 8;
  sm.tile_full = sm.empty + C::kStages * 8;
  sm.tile_empty = sm.tile_full + 16;
  sm.surplus_full = sm.tile_empty + 16;
  sm.surplus_empty = sm.surplus_full + 8;
  sm.tiles = tiles;
  sm.surplus = surplus;
  return sm;
}

template <class C>
__device__ __forceinline__ void init_barriers(const GradientShared& sm) {
  for (int i = 0; i < C::kStages; ++i) {
    mbarrier_init(sm.full + i * 8, 1);
    mbarrier_init(sm.empty + i * 8, 2);  // one arrival of each consumer warpgroup
  }
  for (int i = 0; i < 2; ++i) {
    mbarrier_init(sm.tile_full + i * 8, 1);
    mbarrier_init(sm.tile_empty + i * 8, 8);  // of each consumer warp
  }
  mbarrier_init(sm.surplus_full, 1);
  mbarrier_init(sm.surplus_empty, 1);
  mbarrier_init_fence();
}

}  // namespace longspan::hopper
