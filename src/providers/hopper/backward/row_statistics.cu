#include <cuda_runtime_api.h>

#include "cuda/runtime.h"
#include "providers/hopper/backward/row_statistics.h"
#include "providers/hopper/maps.h"
#include "providers/hopper/ptx/arithmetic.cuh"

namespace longspan::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kOctet = 8;  // elements that a thread takes at a time

struct StatisticsParameters {
  RowView lse, delta, dout, o;
  RowStatistics* to;
  int64_t stride;  // from head to head
  int64_t units;   // rows of all heads
  uint32_t heads;
  bool wide;  // whether octets may be read in one access
};

/// Writes those of a unit.
__device__ void write(const StatisticsParameters& p, int32_t row, int32_t head, float delta) {
  constexpr float kLog2E = 1.44269504089f, kInfinity = __builtin_huge_valf();
  const float lse = *p.lse.at<const float>(row, head);
  p.to[head * p.stride + row] = {lse == -kInfinity ? kInfinity : lse * kLog2E, delta};
}

__device__ uint4 octet_at(const uint16_t* from, bool wide) {
  if (wide) return *reinterpret_cast<const uint4*>(from);
  const auto pair = [&](int i) {
    return from[2 * i] | static_cast<uint32_t>(from[2 * i + 1]) << 16;
  };
  return {pair(0), pair(1), pair(2), pair(3)};
}

template <class T>
__device__ float product(uint32_t a, uint32_t b) {
  const float2 x = unpack<T>(a), y = unpack<T>(b);
  return x.x * y.x + x.y * y.y;
}

/// A warp for each row and head.
template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(const __grid_constant__ StatisticsParameters p) {
  const int64_t unit = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (unit >= p.units) return;
  const auto row = static_cast<int32_t>(unit / p.heads);
  const auto head = static_cast<int32_t>(unit - int64_t{row} * p.heads);
  const uint16_t* const dout = p.dout.at<const uint16_t>(row, head);
  const uint16_t* const o = p.o.at<const uint16_t>(row, head);
  const int lane = threadIdx.x & 31;
  float sum = 0;
#pragma unroll 2
  for (int i = lane * kOctet; i < p.o.dim; i += 32 * kOctet) {
    const uint4 a = octet_at(dout + i, p.wide), b = octet_at(o + i, p.wide);
    sum += (product<T>(a.x, b.x) + product<T>(a.y, b.y)) +
           (product<T>(a.z, b.z) + product<T>(a.w, b.w));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) write(p, row, head, sum);
}

/// A thread for each row and head.
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(const __grid_constant__ StatisticsParameters p) {
  const int64_t unit = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (unit >= p.units) return;
  const auto row = static_cast<int32_t>(unit / p.heads);
  const auto head = static_cast<int32_t>(unit - int64_t{row} * p.heads);
  write(p, row, head, *p.delta.at<const float>(row, head));
}

}  // namespace

Status load_statistics() {
  cudaFuncAttributes attributes;
  cudaError_t code = cudaFuncGetAttributes(&attributes, delta_kernel<__nv_bfloat16>);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, delta_kernel<__half>);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, statistics_kernel);
  return cuda::status(code, "loading hopper's statistics of rows");
}

Status make_statistics(const BackwardTiles& t, RowStatistics* to, int64_t rows) {
  const bool given = t.delta.rows() > 0;
  StatisticsParameters p = {.lse = row_view(t.lse),
                            .to = to,
                            .stride = rows,
                            .units = t.q.rows() * t.q.heads,
                            .heads = static_cast<uint32_t>(t.q.heads)};
  if (p.units == 0) return {};
  const auto blocks = static_cast<unsigned>((p.units * (given ? 1 : 32) + kThreads - 1) / kThreads);
  const auto stream = static_cast<cudaStream_t>(t.stream.handle);
  if (given) {
    p.delta = row_view(t.delta);
    statistics_kernel<<<blocks, kThreads, 0, stream>>>(p);
  } else {
    p.dout = row_view(t.dout);
    p.o = row_view(t.o);
    p.wide = aligned(t.dout, 16) && aligned(t.o, 16);
    const auto kernel =
        t.dout.dtype == DType::kBF16 ? delta_kernel<__nv_bfloat16> : delta_kernel<__half>;
    kernel<<<blocks, kThreads, 0, stream>>>(p);
  }
  return cuda::status(cudaGetLastError(), "launching hopper's statistics of rows");
}

}  // namespace longspan::hopper
