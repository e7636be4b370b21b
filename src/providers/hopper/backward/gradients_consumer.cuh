// A consumer warpgroup: 64 rows of a gradient, tile after tile. The products of a step are issued
// before those of the last one are waited for.
#pragma once

#include "providers/hopper/backward/gradients_results.cuh"
#include "providers/hopper/ptx/wgmma.cuh"

namespace longspan::hopper {

template <class C>
class GradientConsumer {
 public:
  using T = typename C::Element;

  __device__ __forceinline__ GradientConsumer(const GradientParameters& p, const GradientShared& sm,
                                              int group)
      : p_(p), sm_(sm), group_(group) {
    row_ = group * 64 + (threadIdx.x & 127) / 32 * 16 + (threadIdx.x & 31) / 4;
  }

  __device__ __forceinline__ void run() {
    for (int number = 0;; ++number) {
      const int slot = number & (C::kTiles - 1);
      bounded_wait(sm_.tile_full + slot * 8, number / C::kTiles & 1);
      const int steps = sm_.tiles[slot].steps, gradient = sm_.tiles[slot].gradient;
      if (steps < 0) return;
      if constexpr (C::kValueColumns < C::kColumns) {
        if (gradient == static_cast<int>(Gradient::kDv)) {
          float d[C::kValueColumns / 2];
          multiply<1>(d, steps);
          write(d, slot);
          continue;
        }
      }
      float d[C::kColumns / 2];
      if (gradient == static_cast<int>(Gradient::kDq)) {
        multiply<0>(d, steps);
      } else {
        multiply<1>(d, steps);
      }
      write(d, slot);
    }
  }

 private:
  /// TRANSPOSED: rows of the gradient are columns of the scores.
  template <int TRANSPOSED, int R>
  __device__ __forceinline__ void multiply(float (&d)[R], int steps) {
    if (steps == 0) {
#pragma unroll
      for (int i = 0; i < R; ++i) d[i] = 0;
      return;
    }
    accumulators_dead(d);
#pragma unroll 1
    for (int i = 0; i < steps; ++i, at_.advance()) {
      bounded_wait(sm_.full + at_.stage * 8, at_.parity);
      issue<TRANSPOSED>(d, opaque(sm_.stages) + at_.stage * C::kStageBytes, i > 0);
      if (i == 0) continue;
      wgmma_wait<1>();
      release(at_.last());
    }
    wgmma_wait<0>();
    accumulators_ready(d);
    release(at_.last());
  }

  template <int TRANSPOSED, int R>
  __device__ __forceinline__ void issue(float (&d)[R], uint32_t stage, int accumulate) {
    const uint32_t scores = stage + group_ * kBlockBytes;
    const uint32_t low_a = TRANSPOSED ? low_mn_major(scores, kBlockBytes) : low_k_major(scores);
    const uint32_t low_b = low_mn_major(stage + C::kScoreBytes, kBlockBytes);
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) {
      Wgmma<T, 2 * R>::template ss<TRANSPOSED, 1>(
          d, descriptor(low_a + kk * (TRANSPOSED ? kStepMn : kStepK)),
          descriptor(low_b + kk * kStepMn), kk > 0 || accumulate);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void release(int stage) const {
    if ((threadIdx.x & 127) == 0) mbarrier_arrive(sm_.empty + stage * 8);
  }

  template <int R>
  __device__ __forceinline__ void write(float (&d)[R], int slot) {
    volatile GradientTile& tile = sm_.tiles[slot];
    const int rows = tile.rows - row_;
    const GradientPlace at = {tile.row + row_, tile.head, tile.column, {rows > 0, rows > 8}};
    const int gradient = tile.gradient;
    const bool adds = tile.adds != 0, ends = tile.ends != 0;
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbarrier_arrive(sm_.tile_empty + slot * 8);
    write_gradient<T>(p_.rows[gradient], d, at, adds, ends);
  }

  const GradientParameters& p_;
  const GradientShared& sm_;
  int group_;
  int row_;  // this thread's upper row in a tile
  StageCursor<C::kStages> at_;
};

}  // namespace longspan::hopper
