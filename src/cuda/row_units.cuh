// How kernels of row operations find their work: warps take pieces of rows in turn.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/device_view.cuh"
#include "cuda/row_ops.h"

namespace longspan::cuda {

constexpr int kWarp = 32;
constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / kWarp;
constexpr int kMostViews = 48;  // of one launch: kernel parameters hold 4 KiB

struct RowParameters {
  DeviceView views[kMostViews];
  DeviceView third;
  const RowItem* items;
  const int64_t* first;
  const int32_t* lengths;  // null: every row is there
  int64_t rows;
  int64_t head_begin;
  int32_t count;  // items
  int32_t span;   // heads of a piece
};

/// Heads [0, heads) from these on of one row of an item.
struct RowUnit {
  const RowItem& item;
  int64_t src_row, dst_row;
  int64_t src_head, dst_head;
  int32_t heads;
};

inline __device__ RowUnit row_unit(const RowParameters& p, int64_t number, int32_t piece) {
  int32_t low = 0;
  int32_t high = p.count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (p.first[middle] <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const RowItem& item = p.items[low];
  const int64_t row = number - p.first[low];
  const int32_t head = piece * p.span;
  return {item,
          item.src_row + row * item.src_step,
          item.dst_row + row * item.dst_step,
          item.src_head + head,
          item.dst_head + head,
          min(p.span, item.heads - head)};
}

/// Calls body(unit, src, dst, lane) with every unit of the table, a warp each. Blocks of one x
/// share rows, each y takes another piece of them.
template <class Body>
__device__ void for_each_unit(const RowParameters& p, const Body& body) {
  const int lane = threadIdx.x % kWarp;
  const int64_t step = int64_t{gridDim.x} * kRowWarps;
  for (int64_t i = int64_t{blockIdx.x} * kRowWarps + threadIdx.x / kWarp; i < p.rows; i += step) {
    const RowUnit u = row_unit(p, i, static_cast<int32_t>(blockIdx.y));
    if (u.heads > 0) body(u, p.views[u.item.src], p.views[u.item.dst], lane);
  }
}

inline __device__ bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// Launches of each group of operations, one file each.
void launch_moves(RowOp op, const RowParameters& p, dim3 blocks, cudaStream_t stream);
void launch_sums(RowOp op, const RowParameters& p, dim3 blocks, cudaStream_t stream);
void launch_sinks(const RowParameters& p, dim3 blocks, cudaStream_t stream);
void launch_sink_gradient(const RowParameters& p, int heads, const DeviceView& dsink,
                          cudaStream_t stream);

}  // namespace longspan::cuda
