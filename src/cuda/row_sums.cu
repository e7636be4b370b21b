// Sums and maxima of rows, and delta.
#include "cuda/row_units.cuh"

namespace longspan::cuda {
namespace {

template <class T>
__device__ T combined(T a, T b, bool adds) {
  return adds ? a + b : (b > a ? b : a);
}

__device__ float4 combined(const float4& a, const float4& b, bool adds) {
  return {combined(a.x, b.x, adds), combined(a.y, b.y, adds), combined(a.z, b.z, adds),
          combined(a.w, b.w, adds)};
}

template <class T>
__device__ void combine(const T* from, T* to, int32_t count, bool adds, int lane) {
#pragma unroll 4
  for (int32_t i = lane; i < count; i += kWarp) to[i] = combined(to[i], from[i], adds);
}

__global__ void __launch_bounds__(kRowThreads)
    combine_kernel(const __grid_constant__ RowParameters p, bool adds) {
  for_each_unit(p,
                [adds](const RowUnit& u, const DeviceView& src, const DeviceView& dst, int lane) {
                  const int32_t count = u.heads * dst.dim;
                  if (dst.dtype == DType::kF64) {
                    combine(src.at<double>(u.src_row, u.src_head),
                            dst.at<double>(u.dst_row, u.dst_head), count, adds, lane);
                    return;
                  }
                  const float* const from = src.at<float>(u.src_row, u.src_head);
                  float* const to = dst.at<float>(u.dst_row, u.dst_head);
                  if (count % 4 == 0 && aligned(from) && aligned(to)) {
                    combine(reinterpret_cast<const float4*>(from), reinterpret_cast<float4*>(to),
                            count / 4, adds, lane);
                  } else {
                    combine(from, to, count, adds, lane);
                  }
                });
}

/// The sum over the lanes of a warp, the same on every one.
__device__ double sum_of_warp(double value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, step);
  }
  return value;
}

template <class O, class D>
__device__ double product(const O* o, const D* dout, int32_t dim, int lane) {
  double sum = 0;
#pragma unroll 4
  for (int32_t i = lane; i < dim; i += kWarp) {
    sum += static_cast<double>(static_cast<float>(o[i])) * static_cast<float>(dout[i]);
  }
  return sum;
}
template <>
__device__ double product(const double* o, const double* dout, int32_t dim, int lane) {
  double sum = 0;
  for (int32_t i = lane; i < dim; i += kWarp) sum += o[i] * dout[i];
  return sum;
}

template <class D>
__device__ double product_with(const DeviceView& o, const D* dout, const RowUnit& u, int32_t head,
                               int lane) {
  if (o.dtype == DType::kF32) {
    return product(o.at<float>(u.src_row, u.src_head + head), dout, o.dim, lane);
  }
  return product(o.at<D>(u.src_row, u.src_head + head), dout, o.dim, lane);
}

__device__ double delta_of(const DeviceView& o, const DeviceView& dout, const RowUnit& u,
                           int32_t head, int lane) {
  const int64_t row = u.src_row;
  const int64_t place = u.src_head + head;
  switch (dout.dtype) {
    case DType::kF64:
      return product(o.at<double>(row, place), dout.at<double>(row, place), o.dim, lane);
    case DType::kF32: return product_with(o, dout.at<float>(row, place), u, head, lane);
    case DType::kF16: return product_with(o, dout.at<__half>(row, place), u, head, lane);
    case DType::kBF16: return product_with(o, dout.at<__nv_bfloat16>(row, place), u, head, lane);
  }
  return 0;
}

__global__ void __launch_bounds__(kRowThreads)
    delta_kernel(const __grid_constant__ RowParameters p) {
  for_each_unit(p, [&p](const RowUnit& u, const DeviceView& o, const DeviceView& delta, int lane) {
    for (int32_t head = 0; head < u.heads; ++head) {
      const double sum = sum_of_warp(delta_of(o, p.third, u, head, lane));
      if (lane == 0) delta.store(u.dst_row, u.dst_head + head, 0, sum);
    }
  });
}

}  // namespace

void launch_sums(RowOp op, const RowParameters& p, dim3 blocks, cudaStream_t stream) {
  if (op == RowOp::kDelta) {
    delta_kernel<<<blocks, kRowThreads, 0, stream>>>(p);
  } else {
    combine_kernel<<<blocks, kRowThreads, 0, stream>>>(p, op == RowOp::kAdd);
  }
}

}  // namespace longspan::cuda
