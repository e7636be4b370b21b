// What the warps of a block share while they compute dS and dV.
#pragma once

#include <cstdint>

#include "providers/hopper/backward/layout.h"
#include "providers/hopper/ptx/bounded_wait.cuh"

namespace longspan::hopper {

/// 128 keys stay in shared memory, with up to 192 columns of K and 128 of V, while a walk goes over
/// queries, 128 in a step.
template <class T>
struct ValueConfig {
  using Element = T;
  static constexpr int kKeyBlocks = 3, kValueBlocks = 2;    // of 64 columns
  static constexpr int kColumnBytes = kGradientRows * 128;  // 128 rows of 64 columns
  static constexpr int kKeyBytes = kKeyBlocks * kColumnBytes;
  static constexpr int kValueBytes = kValueBlocks * kColumnBytes;
  static constexpr int kDoutStages = 2;
  static constexpr int kStagingBytes = 2 * kBlockBytes;  // dS of 64 keys, of each warpgroup
  static constexpr int kStatistics = 2;                  // steps whose statistics are there
  static constexpr int kStatisticBytes = 2 * kUnitQueries * 4;
  static constexpr int kWalks = 4;       // that are announced
  static constexpr int kDrawsAhead = 2;  // steps before a walk's end when the next one is drawn
  static constexpr int kBarriers =
      2 * kKeyBlocks + 3 * kDoutStages + 4 + 2 * kStatistics + 2 * kWalks + 1;
  static constexpr int kThreads = 384;
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
  static_assert(2 * kConsumerRegisters + kProducerRegisters <= kBlockRegisters);
};

/// A walk, as it is announced.
struct ValueWalk {
  int32_t steps;  // negative: there are no more walks
  int32_t row;    // of the view: the first key
  int32_t rows;   // from it to the region's last key, maybe more than the walk has
  int32_t head;   // key head of the view
  int32_t adds, ends;
  int32_t turn, sum_part, sum_parts;                     // as in GradientItem
  int32_t tile;                                          // as in GradientItem
  int32_t first_line, last_line, first_head, last_head;  // lines of 128 queries
  int32_t q_row, queries;                                // of the region
  int32_t lo, hi;  // query i of the region sees key j of the walk when lo <= j - i <= hi
  int32_t line;    // the region's first one
};

/// What the warpgroups need to know of a step.
struct ValueStep {
  int32_t block, pitch;   // of scratch: the first one, and blocks to the next 64 queries
  int32_t keys, queries;  // that there are from the step's first ones on, maybe more than it has
  int32_t lo, hi;         // query i of the step sees key j when lo <= j - i <= hi
  int32_t hides[2];       // whether 64 keys have pairs that do not see each other, or do not exist
};

template <class C>
struct ValueMemory {
  char keys[C::kKeyBytes], values[C::kValueBytes];
  char queries[C::kKeyBytes];
  char dout[C::kDoutStages][C::kValueBytes];
  char staging[2][C::kStagingBytes];
  char statistics[C::kStatistics][C::kStatisticBytes];
  ValueStep steps[C::kStatistics];
  uint64_t barriers[C::kBarriers];
  ValueWalk walks[C::kWalks];
};
template <class C>
constexpr int kValueSharedBytes = sizeof(ValueMemory<C>);
static_assert(kValueSharedBytes<ValueConfig<float>> <= 232448, "more than a block of sm_90 has");

/// Addresses of shared memory.
struct ValueShared {
  uint32_t keys, values, queries, dout, staging, statistics;
  uint32_t keys_full, keys_empty, values_full, values_empty;
  uint32_t queries_full, queries_empty;  // a barrier for each 64 columns
  uint32_t dout_full, dout_empty;        // for each stage
  uint32_t surplus_full;                 // as dout_full, where rows are to be made zeros
  uint32_t step_full, step_empty;
  uint32_t walk_full, walk_empty;
  uint32_t draw;  // once a walk: the next one is needed soon
  volatile ValueStep* steps;
  volatile ValueWalk* walks;  // by the walk's number
};

template <class C>
__device__ __forceinline__ ValueShared make_value_shared(ValueMemory<C>& m) {
  ValueShared sm;
  sm.keys = shared_address(m.keys);
  sm.values = shared_address(m.values);
  sm.queries = shared_address(m.queries);
  sm.dout = shared_address(m.dout);
  sm.staging = shared_address(m.staging);
  sm.statistics = shared_address(m.statistics);
  sm.keys_full = shared_address(m.barriers);
  sm.keys_empty = sm.keys_full + 8;
  sm.values_full = sm.keys_empty + 8;
  sm.values_empty = sm.values_full + 8;
  sm.queries_full = sm.values_empty + 8;
  sm.queries_empty = sm.queries_full + C::kKeyBlocks * 8;
  sm.dout_full = sm.queries_empty + C::kKeyBlocks * 8;
  sm.dout_empty = sm.dout_full + C::kDoutStages * 8;
  sm.surplus_full = sm.dout_empty + C::kDoutStages * 8;
  sm.step_full = sm.surplus_full + C::kDoutStages * 8;
  sm.step_empty = sm.step_full + C::kStatistics * 8;
  sm.walk_full = sm.step_empty + C::kStatistics * 8;
  sm.walk_empty = sm.walk_full + C::kWalks * 8;
  sm.draw = sm.walk_empty + C::kWalks * 8;
  sm.steps = m.steps;
  sm.walks = m.walks;
  return sm;
}

template <class C>
__device__ __forceinline__ void init_barriers(const ValueShared& sm) {
  constexpr int kGroups = 2;  // one arrival of each consumer warpgroup
  mbarrier_init(sm.keys_full, 1);
  mbarrier_init(sm.keys_empty, kGroups);
  mbarrier_init(sm.values_full, 1);
  mbarrier_init(sm.values_empty, kGroups);
  for (int i = 0; i < C::kKeyBlocks; ++i) {
    mbarrier_init(sm.queries_full + i * 8, 1);
    mbarrier_init(sm.queries_empty + i * 8, kGroups);
  }
  for (int i = 0; i < C::kDoutStages; ++i) {
    mbarrier_init(sm.dout_full + i * 8, 1);
    mbarrier_init(sm.dout_empty + i * 8, kGroups);
    mbarrier_init(sm.surplus_full + i * 8, 1);
  }
  for (int i = 0; i < C::kStatistics; ++i) {
    mbarrier_init(sm.step_full + i * 8, 1);
    mbarrier_init(sm.step_empty + i * 8, kGroups);
  }
  for (int i = 0; i < C::kWalks; ++i) {
    mbarrier_init(sm.walk_full + i * 8, 1);
    mbarrier_init(sm.walk_empty + i * 8, 10);  // of each consumer warp, the loader and the reader
  }
  mbarrier_init(sm.draw, 1);
  mbarrier_init_fence();
}

}  // namespace longspan::hopper
