// The thread that announces tiles of gradients and loads their operands; a warp that zeroes rows.
#pragma once

#include "providers/hopper/backward/gradients_shared.cuh"
#include "providers/hopper/backward/operands.cuh"

namespace longspan::hopper {

template <class C>
class GradientProducer {
 public:
  __device__ __forceinline__ GradientProducer(const GradientParameters& p, const GradientShared& sm)
      : p_(p), sm_(sm) {}

  __device__ __forceinline__ void run() {
    int unit = blockIdx.x;
    for (; unit < p_.units; unit = gridDim.x + atomicInc(p_.counter, p_.units - 1)) {
      const GradientItem& item = p_.items[unit];
      if (p_.only_key_head >= 0 && key_head_of(item) != p_.only_key_head) continue;
      const Region region = p_.chunk.regions[item.region];
      announce(item, region);
      if (item.gradient == Gradient::kDq) {
        load<true>(item, region);
      } else {
        load<false>(item, region);
      }
    }
    const int slot = take_slot();
    sm_.tiles[slot].steps = -1;
    mbarrier_arrive(sm_.tile_full + slot * 8);
    next_surplus({-1, 0});
    mbarrier_arrive(sm_.surplus_full);
  }

 private:
  __device__ __forceinline__ int take_slot() {
    const int slot = number_ & 1;
    bounded_wait(sm_.tile_empty + slot * 8, (number_ >> 1 & 1) ^ 1);
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
    mbarrier_arrive(sm_.tile_full + slot * 8);
  }

  __device__ __forceinline__ int key_head_of(const GradientItem& item) const {
    if (item.gradient != Gradient::kDq) return item.head;
    return p_.chunk.key_head(p_.chunk.first_head + item.head) - p_.chunk.first_key_head;
  }

  /// dQ sums over keys: dS K; dK and dV over the queries of several heads: dS^T Q and P^T dO.
  template <bool QUERIES>
  __device__ __forceinline__ void load(const GradientItem& item, const Region& region) {
    const Operand& operand = p_.operands[static_cast<int>(item.gradient)];
    const char* const scores = item.gradient == Gradient::kDv ? p_.chunk.p : p_.chunk.ds;
    const int first = item.first, last = item.last, rows = QUERIES ? region.keys : region.queries;
#pragma unroll 1
    for (int head = item.first_head; head < item.last_head; ++head) {
      const int query_head = p_.chunk.first_head + head;
      Coordinates c = coordinates_of(operand, QUERIES ? region.k_row : region.q_row,
                                     QUERIES ? p_.chunk.key_head(query_head) : query_head);
      c.row += first * 64;
      const char* const of_head = block(scores, head * p_.chunk.head_blocks);
#pragma unroll 1
      for (int i = first; i < last; ++i, c.row += 64, ++step_) {
        const uint32_t stage = sm_.stages + (step_ & (C::kStages - 1)) * C::kStageBytes;
        const uint32_t bar = take_stage(rows - i * 64, operand.tensor.rows - c.row);
        load_scores<QUERIES>(stage, bar, of_head, region.line, item.tile, i);
        load_rows(stage + C::kScoreBytes, operand.tensor, bar, kBlockBytes, c,
                  item.part * C::kColumnBlocks, C::kColumnBlocks);
      }
    }
  }

  /// Waits for the next stage, and says which barrier counts its bytes: `valid` rows of a box are
  /// the region's, `left` are the tensor's, behind whose last row TMA writes zeros.
  __device__ __forceinline__ uint32_t take_stage(int valid, int left) {
    const int s = step_ & (C::kStages - 1);
    bounded_wait(sm_.empty + s * 8, (step_ / C::kStages & 1) ^ 1);
    const bool surplus = valid < 64 && valid < left;
    if (surplus) next_surplus({s, valid});
    const uint32_t bar = surplus ? sm_.surplus_full : sm_.full + s * 8;
    mbarrier_expect_bytes(bar, C::kStageBytes);
    return bar;
  }

  /// Two blocks of P or dS: of 128 queries and keys block `i`, or of queries block `i` and 128
  /// keys.
  template <bool QUERIES>
  __device__ __forceinline__ void load_scores(uint32_t stage, uint32_t bar, const char* of_head,
                                              int first_line, int tile, int i) const {
    const Line line = p_.chunk.lines[first_line + (QUERIES ? tile : i / 2)];
    if (!QUERIES) {
      bulk_load(stage, block(of_head, line.first + (i & 1) * line.pitch + tile * 2), bar,
                2 * kBlockBytes);
      return;
    }
    bulk_load(stage, block(of_head, line.first + i), bar, kBlockBytes);
    bulk_load(stage + kBlockBytes, block(of_head, line.first + line.pitch + i), bar, kBlockBytes);
  }

  static __device__ __forceinline__ const char* block(const char* scores, int number) {
    return scores + static_cast<int64_t>(number) * kBlockBytes;
  }

  __device__ __forceinline__ void next_surplus(const Surplus& surplus) {
    bounded_wait(sm_.surplus_empty, (surpluses_ & 1) ^ 1);
    sm_.surplus->stage = surplus.stage;
    sm_.surplus->valid = surplus.valid;
    ++surpluses_;
  }

  const GradientParameters& p_;
  const GradientShared& sm_;
  int step_ = 0, number_ = 0, surpluses_ = 0;
};

/// Zeroes the rows of stages that are not the tile's, and passes the stages on. P and dS are 0
/// there, but what lies there may be NaN.
template <class C>
__device__ __forceinline__ void clear_surplus(const GradientShared& sm, int lane) {
  for (int number = 0;; ++number) {
    bounded_wait(sm.surplus_full, number & 1);
    const int stage = sm.surplus->stage, valid = sm.surplus->valid;
    if (stage < 0) return;
    clear_rows(sm.stages + stage * C::kStageBytes + C::kScoreBytes, C::kColumnBlocks, kBlockBytes,
               valid, lane);
    if (lane == 0) {
      mbarrier_arrive(sm.full + stage * 8);
      mbarrier_arrive(sm.surplus_empty);
    }
  }
}

}  // namespace longspan::hopper
