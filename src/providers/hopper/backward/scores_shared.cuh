// What the warps of a block share while they recompute P and dS.
#pragma once

#include <cstdint>

#include "providers/hopper/backward/layout.h"
#include "providers/hopper/ptx/bounded_wait.cuh"
#include "providers/hopper/work.h"

namespace longspan::hopper {

/// A unit of scores, as the producer announces it.
struct ScoreUnit {
  int32_t head;           // query head; negative: there are no more units
  int32_t q_row;          // of the unit's first query
  int32_t queries, keys;  // of the region from the unit's first ones on, maybe more than it has
  int32_t lo, hi;         // query i sees key j of the unit when lo <= j - i <= hi
  int32_t block;          // of scratch: the unit's first one
  int32_t pitch;          // blocks from 64 queries to the next 64
};

/// A step of TMA brings 64 columns of Q and K, or of dout and V.
struct ScoreConfig {
  static constexpr int kStages = 4, kUnits = 4;
  static constexpr int kQueryBytes = kUnitQueries * 128, kKeyBytes = kUnitKeys * 128;
  static constexpr int kStageBytes = kQueryBytes + kKeyBytes;
  /// P or dS of 64 queries x 128 keys, of each warpgroup.
  static constexpr int kStagingBytes = 2 * kBlockBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 2 * kStagingBytes + 1024;
  static constexpr int kThreads = 384;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
  static_assert(2 * kConsumerRegisters + kProducerRegisters <= kBlockRegisters);
  static_assert(kSharedBytes + 512 <= 232448, "more than a block of sm_90 may have");
};

/// Addresses of shared memory.
struct ScoreShared {
  uint32_t stages, staging;
  uint32_t full, empty, unit_full, unit_empty;  // a barrier for each stage, or unit
  volatile ScoreUnit* units;                    // by the unit's number
  Tokens* tokens;                               // of the units, where scores have terms
};
constexpr int kScoreBarriers = 2 * ScoreConfig::kStages + 2 * ScoreConfig::kUnits;

/// Whether this thread is the first one of its warpgroup.
__device__ __forceinline__ bool leads_warpgroup() { return (threadIdx.x & 127) == 0; }

__device__ __forceinline__ ScoreShared make_score_shared(const char* stages,
                                                         const uint64_t* barriers, ScoreUnit* units,
                                                         Tokens* tokens) {
  using C = ScoreConfig;
  ScoreShared sm;
  sm.stages = (shared_address(stages) + 1023) & ~1023u;
  sm.staging = sm.stages + C::kStages * C::kStageBytes;
  sm.full = shared_address(barriers);
  sm.empty = sm.full + C::kStages * 8;
  sm.unit_full = sm.empty + C::kStages * 8;
  sm.unit_empty = sm.unit_full + C::kUnits * 8;
  sm.units = units;
  sm.tokens = tokens;
  return sm;
}

__device__ __forceinline__ void init_barriers(const ScoreShared& sm) {
  using C = ScoreConfig;
  for (int i = 0; i < C::kStages; ++i) {
    mbarrier_init(sm.full + i * 8, 1);
    mbarrier_init(sm.empty + i * 8, 2);  // one arrival of each consumer warpgroup
  }
  for (int i = 0; i < C::kUnits; ++i) {
    mbarrier_init(sm.unit_full + i * 8, 1);
    mbarrier_init(sm.unit_empty + i * 8, 8);  // of each consumer warp
  }
  mbarrier_init_fence();
}

}  // namespace longspan::hopper
