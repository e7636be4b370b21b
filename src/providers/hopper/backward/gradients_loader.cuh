// The thread that loads operands of announced tiles of gradients; a warp that zeroes rows.
#pragma once

#include "providers/hopper/backward/gradients_shared.cuh"
#include "providers/hopper/backward/operands.cuh"

namespace longspan::hopper {

template <class C>
class GradientLoader {
 public:
  __device__ __forceinline__ GradientLoader(const GradientParameters& p, const GradientShared& sm)
      : p_(p), sm_(sm) {}

  __device__ __forceinline__ void run() {
    for (int number = 0;; ++number) {
      const int slot = number & (C::kTiles - 1);
      bounded_wait(sm_.tile_full + slot * 8, number / C::kTiles & 1);
      volatile GradientTile& tile = sm_.tiles[slot];
      left_ = tile.steps;
      if (left_ < 0) break;
      if (left_ <= C::kDrawsAhead) mbarrier_arrive(sm_.draw);
      const int gradient = tile.gradient;
      if (gradient == static_cast<int>(Gradient::kDq)) {
        load<true>(tile, gradient);
      } else {
        load<false>(tile, gradient);
      }
      mbarrier_arrive(sm_.tile_empty + slot * 8);
    }
    next_surplus({-1, 0});
    mbarrier_arrive(sm_.surplus_full);
  }

 private:
  /// dQ sums over keys: dS K; dK and dV over the queries of several heads: dS^T Q and P^T dO.
  template <bool QUERIES>
  __device__ __forceinline__ void load(volatile GradientTile& tile, int gradient) {
    const Operand& operand = p_.operands[gradient];
    const bool values = gradient == static_cast<int>(Gradient::kDv);
    const char* const scores = values ? p_.chunk.p : p_.chunk.ds;
    const int blocks = (values ? C::kValueColumns : C::kColumns) / 64;
    const int first_block = tile.column / 64;
#pragma unroll 1
    for (int head = tile.first_head; head < tile.last_head; ++head) {
      const int query_head = p_.chunk.first_head + head;
      const Coordinates first = coordinates_of(
          operand, tile.other_row, QUERIES ? p_.chunk.key_head(query_head) : query_head);
      const char* const of_head = block(scores, head * p_.chunk.head_blocks);
      const int last = tile.last;
#pragma unroll 1
      for (int begin = tile.first; begin < last; begin += tile.window) {
        const int end = min(begin + tile.window, last);
        int i = min(begin + tile.start, end - 1);
#pragma unroll 1
        for (int count = end - begin; count > 0; --count, at_.advance()) {
          // NOTE: ahead of the wait for a stage, so that its way from global memory is covered.
          const Line line = p_.chunk.lines[tile.line + (QUERIES ? tile.tile : i / 2)];
          const uint32_t stage = sm_.stages + at_.stage * C::kStageBytes;
          Coordinates c = first;
          c.row += i * 64;
          const uint32_t bar =
              take_stage(tile.other_rows - i * 64, operand.tensor.rows - c.row, blocks);
          load_scores<QUERIES>(stage, bar, of_head, line, tile.tile, i);
          load_rows(stage + C::kScoreBytes, operand.tensor, bar, kBlockBytes, c, first_block,
                    blocks);
          if (--left_ == C::kDrawsAhead) mbarrier_arrive(sm_.draw);
          i += tile.stride;
          if (i >= end) i = begin;
          if (i < begin) i = end - 1;
        }
      }
    }
  }

  /// Waits for the next stage, and says which barrier counts its bytes, of `blocks` blocks of
  /// columns: `valid` rows of a box are the region's, `left` are the tensor's, behind whose last
  /// row TMA writes zeros.
  __device__ __forceinline__ uint32_t take_stage(int valid, int left, int blocks) {
    bounded_wait(sm_.empty + at_.stage * 8, at_.parity ^ 1);
    const bool surplus = valid < 64 && valid < left;
    if (surplus) next_surplus({at_.stage, valid});
    const uint32_t bar = surplus ? sm_.surplus_full : sm_.full + at_.stage * 8;
    mbarrier_expect_bytes(bar, C::kScoreBytes + blocks * kBlockBytes);
    return bar;
  }

  /// Two blocks of P or dS: of 128 queries and keys block `i`, or of queries block `i` and 128
  /// keys, from 128 `tile` on.
  template <bool QUERIES>
  __device__ __forceinline__ void load_scores(uint32_t stage, uint32_t bar, const char* of_head,
                                              Line line, int tile, int i) const {
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
  StageCursor<C::kStages> at_;
  int left_ = 0;  // steps of the tile
  int surpluses_ = 0;
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
