// O and LSE that merged results are added to, brought to L2 before a tile ends.
//
// Blocks of threads that began together end their tiles together. Without this they all wait for
// the same memory then, and the tensor cores for them.
#pragma once

#include "providers/hopper/forward/tiles.cuh"

namespace longspan::hopper {

/// The key block whose loads a tile's carry is to precede. With two blocks in stages, memory has
/// the time of ten; L2 does not lose in that time what has come.
__device__ __forceinline__ int carry_block(volatile Tile& tile) {
  constexpr int kBlocksLeft = 8;
  return max(tile.block_min, tile.block_max - kBlocksLeft);
}

/// Brings what a tile of ROWS queries is merged into to L2. One warp.
template <int ROWS>
__device__ __forceinline__ void prefetch_carry(const Parameters& p, volatile Tile& tile, int lane) {
  const int first = tile.first, rows = min(tile.queries - first, ROWS);
  const int row = tile.q_row + first, head = tile.head;
#pragma unroll 1
  for (int r = lane; r < rows; r += 32) {
    prefetch_line(p.lse.at<float>(row + r, head));
    if (p.wide) bulk_prefetch(p.out.at<float>(row + r, head), p.out.dim * sizeof(float));
  }
}

}  // namespace longspan::hopper
