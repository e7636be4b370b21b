// What whole results need besides the rows of the other kernels.
#include <cuda_runtime_api.h>

#include "cuda/device_view.cuh"
#include "providers/cuda/reference_kernels.h"

namespace longspan::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    fill_kernel(const __grid_constant__ DeviceView view, const Range* ranges, double value) {
  const Range rows = ranges[blockIdx.x];
  for (int64_t row = rows.first; row < rows.last; ++row) {
    for (int32_t i = threadIdx.x; i < view.dim; i += kThreads) {
      view.store(row, blockIdx.y, i, value);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    delta_kernel(const __grid_constant__ DeviceView dout, const __grid_constant__ DeviceView o,
                 const __grid_constant__ DeviceView delta, int64_t rows) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= rows) return;
  double sum = 0;
  for (int32_t i = 0; i < o.dim; ++i) {
    sum += dout.load(row, blockIdx.y, i) * o.load(row, blockIdx.y, i);
  }
  delta.store(row, blockIdx.y, 0, sum);
}

}  // namespace

Status load_rows() {
  cudaFuncAttributes attributes;
  cudaError_t code = cudaFuncGetAttributes(&attributes, fill_kernel);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, delta_kernel);
  return status(code, "loading cuda/reference for whole results");
}

Status launch_fill(const TensorView& view, const DeviceRows& rows, double value, Stream stream) {
  if (rows.count == 0) return {};
  const dim3 grid(static_cast<unsigned>(rows.count), static_cast<unsigned>(view.heads));
  fill_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(
      device_view(view), static_cast<const Range*>(rows.ranges.data()), value);
  return status(cudaGetLastError(), "launching cuda/reference for whole results");
}

Status launch_delta(const BackwardTiles& call, const TensorView& delta) {
  const int64_t rows = delta.rows();
  if (rows == 0) return {};
  const dim3 grid(static_cast<unsigned>((rows + kThreads - 1) / kThreads),
                  static_cast<unsigned>(delta.heads));
  delta_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(call.stream.handle)>>>(
      device_view(call.dout), device_view(call.o), device_view(delta), rows);
  return status(cudaGetLastError(), "launching cuda/reference's delta");
}

}  // namespace longspan::cuda
