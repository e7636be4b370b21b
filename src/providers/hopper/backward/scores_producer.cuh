// The thread that announces units of scores and loads their operands.
#pragma once

#include "providers/hopper/backward/operands.cuh"
#include "providers/hopper/backward/scores_shared.cuh"
#include "providers/hopper/tokens.h"

namespace longspan::hopper {

template <bool TERMS>
class ScoreProducer {
 public:
  __device__ __forceinline__ ScoreProducer(const ScoreParameters& p, const ScoreShared& sm)
      : p_(p), sm_(sm) {}

  __device__ __forceinline__ void run() {
    int number = 0;
    for (int unit = blockIdx.x; unit < p_.units; unit += gridDim.x, ++number) {
      const int head = unit / p_.count;
      load(p_.items[unit - head * p_.count], head, number);
    }
    const int slot = take_slot(number);
    sm_.units[slot].head = -1;
    mbarrier_arrive(sm_.unit_full + slot * 8);
  }

 private:
  using C = ScoreConfig;

  __device__ __forceinline__ int take_slot(int number) const {
    const int slot = number & (C::kUnits - 1);
    bounded_wait(sm_.unit_empty + slot * 8, (number / C::kUnits & 1) ^ 1);
    return slot;
  }

  __device__ __forceinline__ void load(const ScoreItem& item, int head, int number) {
    const Region region = p_.chunk.regions[item.region];
    const Line line = p_.chunk.lines[region.line + item.line];
    const int first_query = item.line * kUnitQueries, first_key = item.column * kUnitKeys;
    const int query_head = p_.chunk.first_head + head;
    const int slot = take_slot(number);
    volatile ScoreUnit& unit = sm_.units[slot];
    unit.head = query_head;
    unit.q_row = region.q_row + first_query;
    unit.queries = region.queries - first_query;
    unit.keys = region.keys - first_key;
    unit.lo = region.lo + first_query - first_key;
    unit.hi = region.hi + first_query - first_key;
    unit.block = head * p_.chunk.head_blocks + line.first + item.column * kUnitColumns;
    unit.pitch = line.pitch;
    if constexpr (TERMS) {
      sm_.tokens[slot] = tokens_from(p_.terms.tokens[item.region], first_query, first_key);
    }
    mbarrier_arrive(sm_.unit_full + slot * 8);
    const int q_row = region.q_row + first_query, k_row = region.k_row + first_key;
    const int key_head = p_.chunk.key_head(query_head);
    load_steps(p_.q, p_.k, q_row, query_head, k_row, key_head, p_.steps_qk);
    load_steps(p_.dout, p_.v, q_row, query_head, k_row, key_head, p_.steps_v);
  }

  __device__ __forceinline__ void load_steps(const Operand& queries, const Operand& keys, int q_row,
                                             int query_head, int k_row, int key_head, int steps) {
    const Coordinates q = coordinates_of(queries, q_row, query_head);
    const Coordinates k = coordinates_of(keys, k_row, key_head);
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ++step_) {
      const int s = step_ & (C::kStages - 1);
      const uint32_t bar = sm_.full + s * 8, stage = sm_.stages + s * C::kStageBytes;
      bounded_wait(sm_.empty + s * 8, (step_ / C::kStages & 1) ^ 1);
      mbarrier_expect_bytes(bar, C::kStageBytes);
      load_rows(stage, queries.tensor, bar, C::kQueryBytes, q, i);
      load_rows(stage + C::kQueryBytes, keys.tensor, bar, C::kKeyBytes, k, i);
    }
  }

  const ScoreParameters& p_;
  const ScoreShared& sm_;
  int step_ = 0;
};

}  // namespace longspan::hopper
