// Launches of cuda/reference. Views and tables lie on the current device; calls were checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/provider.h"
#include "providers/cuda/tile_table.h"

namespace longspan::cuda {

/// A tile table on the device that was current when it was made.
struct DeviceTable {
  std::vector<TileWave> waves;
  Memory tiles;   // TableTile
  Memory before;  // int64_t

  static Result<DeviceTable> make(const TileTable& table);
};

/// Rows of all tiles, on the device that was current when it was made.
struct DeviceRows {
  Memory ranges;  // Range
  int64_t count = 0;

  static Result<DeviceRows> make(std::span<const PlacedTile> tiles, Written written);
};

// Kernels are loaded when they are first launched, unless that was done before: a stream that is
// captured must not meet it.
Status load_forward(DType dtype);
Status load_backward(DType dtype);

Status load_rows();

/// Rows of the view become `value`, in all of its heads.
Status launch_fill(const TensorView& view, const DeviceRows& rows, double value, Stream stream);
/// delta = rowsum(dout * o) of all rows.
Status launch_delta(const BackwardTiles& call, const TensorView& delta);

Status launch_forward(const TileProblem& problem, const ForwardTiles& call,
                      const DeviceTable& queries);

/// dq.
Status launch_query_gradients(const TileProblem& problem, const BackwardTiles& call,
                              const DeviceTable& queries);
/// dk and dv.
Status launch_key_gradients(const TileProblem& problem, const BackwardTiles& call,
                            const DeviceTable& keys);
/// dbias of the key tokens in `columns`. The order of `tiles` is that of the sums.
Status launch_bias_gradient(const TileProblem& problem, const BackwardTiles& call,
                            const DeviceTable& tiles, Range columns);

}  // namespace longspan::cuda
