// What the warps of a block share while they sum gradients.
#pragma once

#include <cstdint>

#include "providers/hopper/backward/layout.h"
#include "providers/hopper/ptx/bounded_wait.cuh"

namespace longspan::hopper {

/// 128 rows x COLUMNS of dQ or dK, or VALUE_COLUMNS of dV, in steps of 64 rows of the other side.
template <class T, int COLUMNS, int VALUE_COLUMNS>
struct GradientConfig {
  using Element = T;
  static constexpr int kColumns = COLUMNS, kValueColumns = VALUE_COLUMNS;
  static constexpr int kColumnBlocks = COLUMNS / 64;
  static constexpr int kStages = COLUMNS > 192 ? 4 : 5;
  static constexpr int kScoreBytes = 2 * kBlockBytes;  // of P or dS: one block a warpgroup
  static constexpr int kStageBytes = kScoreBytes + kColumnBlocks * kBlockBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;
  static constexpr int kTiles = 4;       // that are announced
  static constexpr int kDrawsAhead = 8;  // steps before a tile's end when the next one is drawn
  static constexpr int kBarriers = 2 * kStages + 2 * kTiles + 3;
  static constexpr int kThreads = 384;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
  static_assert(COLUMNS % 64 == 0 && COLUMNS <= 256);
  static_assert(VALUE_COLUMNS % 64 == 0 && VALUE_COLUMNS <= COLUMNS);
  static_assert(2 * kConsumerRegisters + kProducerRegisters <= kBlockRegisters);
  static_assert(kSharedBytes + 768 <= 232448, "more than a block of sm_90 may have");
};

/// Rows of a gradient, as they are announced.
struct GradientTile {
  int32_t steps;  // negative: there are no more tiles
  int32_t gradient;
  int32_t row;   // of the view
  int32_t rows;  // from it to the region's last, maybe more than the tile has
  int32_t head;  // of the view
  int32_t column;
  int32_t adds, ends;
  // What is summed, as in GradientItem.
  int32_t tile, first, last, first_head, last_head, window, start, stride;
  int32_t other_row, other_rows;  // of the region's other side: the view's first one, and how many
  int32_t line;                   // the region's first one
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
  uint32_t tile_full, tile_empty;  // for each announced tile
  uint32_t draw;                   // once a tile: the next one is needed soon
  uint32_t surplus_full, surplus_empty;
  volatile GradientTile* tiles;  // [kTiles], by the tile's number
  volatile Surplus* surplus;
};

/// A stage, and the parity of its barriers' phases.
template <int STAGES>
struct StageCursor {
  int stage = 0, parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage < STAGES) return;
    stage = 0;
    parity ^= 1;
  }
  __device__ __forceinline__ int last() const { return stage == 0 ? STAGES - 1 : stage - 1; }
};

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
  sm.tile_empty = sm.tile_full + C::kTiles * 8;
  sm.draw = sm.tile_empty + C::kTiles * 8;
  sm.surplus_full = sm.draw + 8;
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
  for (int i = 0; i < C::kTiles; ++i) {
    mbarrier_init(sm.tile_full + i * 8, 1);
    mbarrier_init(sm.tile_empty + i * 8, 9);  // of each consumer warp, and the loader
  }
  mbarrier_init(sm.draw, 1);
  mbarrier_init(sm.surplus_full, 1);
  mbarrier_init(sm.surplus_empty, 1);
  mbarrier_init_fence();
}

}  // namespace longspan::hopper
