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
      const int slot = number & 1;
      bounded_wait(sm_.tile_full + slot * 8, number >> 1 & 1);
      const int steps = sm_.tiles[slot].steps;
      if (steps < 0) return;
      if (sm_.tiles[slot].gradient == static_cast<int>(Gradient::kDq)) {
        multiply<0>(steps);
      } else {
        multiply<1>(steps);
      }
      write(slot);
    }
  }

 private:
  /// TRANSPOSED: rows of the gradient are columns of the scores.
  template <int TRANSPOSED>
  __device__ __forceinline__ void multiply(int steps) {
    if (steps == 0) {
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i) d_[i] = 0;
      return;
    }
    accumulators_dead(d_);
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ++step_) {
      const int s = step_ & (C::kStages - 1);
      bounded_wait(sm_.full + s * 8, step_ / C::kStages & 1);
      issue<TRANSPOSED>(opaque(sm_.stages) + s * C::kStageBytes, i > 0);
      if (i == 0) continue;
      wgmma_wait<1>();
      release(step_ - 1);
    }
    wgmma_wait<0>();
    accumulators_ready(d_);
    release(step_ - 1);
  }

  template <int TRANSPOSED>
  __device__ __forceinline__ void issue(uint32_t stage, int accumulate) {
    const uint32_t scores = stage + group_ * kBlockBytes;
    const uint32_t low_a = TRANSPOSED ? low_mn_major(scores, kBlockBytes) : low_k_major(scores);
    const uint32_t low_b = low_mn_major(stage + C::kScoreBytes, kBlockBytes);
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) {
      Wgmma<T, C::kColumns>::template ss<TRANSPOSED, 1>(
          d_, descriptor(low_a + kk * (TRANSPOSED ? kStepMn : kStepK)),
          descriptor(low_b + kk * kStepMn), kk > 0 || accumulate);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void release(int step) const {
    if ((threadIdx.x & 127) == 0) mbarrier_arrive(sm_.empty + (step & (C::kStages - 1)) * 8);
  }

  __device__ __forceinline__ void write(int slot) {
    volatile GradientTile& tile = sm_.tiles[slot];
    const int rows = tile.rows - row_;
    const GradientPlace at = {tile.row + row_, tile.head, tile.column, {rows > 0, rows > 8}};
    const int gradient = tile.gradient;
    const bool adds = tile.adds != 0, ends = tile.ends != 0;
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbarrier_arrive(sm_.tile_empty + slot * 8);
    write_gradient<T>(p_.rows[gradient], d_, at, adds, ends);
  }

  const GradientParameters& p_;
  const GradientShared& sm_;
  int group_;
  float d_[C::kColumns / 2];
  int row_;  // this thread's upper row in a tile
  int step_ = 0;
};

}  // namespace longspan::hopper
