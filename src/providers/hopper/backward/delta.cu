#include <cuda_runtime_api.h>

#include "cuda/runtime.h"
#include "providers/hopper/backward/delta.h"
#include "providers/hopper/maps.h"
#include "providers/hopper/ptx/arithmetic.cuh"

namespace longspan::hopper {
namespace {

constexpr int kThreads = 256;
constexpr int kOctet = 8;  // elements that a thread takes at a time

struct DeltaParameters {
  RowView dout, o, delta;
  int64_t units;  // rows of all heads, a warp each
  uint32_t heads;
  bool wide;  // whether octets may be read in one access
};

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

template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(const __grid_constant__ DeltaParameters p) {
  const int64_t unit = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (unit >= p.units) return;
  const auto row = static_cast<int32_t>(unit / p.heads);
  const auto head = static_cast<int32_t>(unit - int64_t{row} * p.heads);
  const uint16_t* const dout = p.dout.at<uint16_t>(row, head);
  const uint16_t* const o = p.o.at<uint16_t>(row, head);
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
  if (lane == 0) *p.delta.at<float>(row, head) = sum;
}

}  // namespace

Status load_delta() {
  cudaFuncAttributes attributes;
  cudaError_t code = cudaFuncGetAttributes(&attributes, delta_kernel<__nv_bfloat16>);
  if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, delta_kernel<__half>);
  return cuda::status(code, "loading hopper's delta");
}

Status make_delta(const TensorView& dout, const TensorView& o, const TensorView& delta,
                  Stream stream) {
  const DeltaParameters p = {.dout = row_view(dout),
                             .o = row_view(o),
                             .delta = row_view(delta),
                             .units = o.rows() * o.heads,
                             .heads = static_cast<uint32_t>(o.heads),
                             .wide = aligned(dout, 16) && aligned(o, 16)};
  if (p.units == 0) return {};
  const auto blocks = static_cast<unsigned>((p.units * 32 + kThreads - 1) / kThreads);
  const auto kernel =
      dout.dtype == DType::kBF16 ? delta_kernel<__nv_bfloat16> : delta_kernel<__half>;
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(p);
  return cuda::status(cudaGetLastError(), "launching hopper's delta");
}

}  // namespace longspan::hopper
