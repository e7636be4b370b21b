// Copies between rows, and fills.
#include "cuda/row_units.cuh"

namespace longspan::cuda {
namespace {

constexpr int kInFlight = 4;  // 16-byte loads of a lane before the first store

__device__ int32_t size(DType dtype) {
  return dtype == DType::kF64 ? 8 : dtype == DType::kF32 ? 4 : 2;
}

__device__ void copy_bytes(const char* src, char* dst, int32_t bytes, int lane) {
  if (bytes % 16 != 0 || !aligned(src) || !aligned(dst)) {
    for (int32_t i = lane * 2; i < bytes; i += kWarp * 2) {  // no type is smaller
      *reinterpret_cast<uint16_t*>(dst + i) = *reinterpret_cast<const uint16_t*>(src + i);
    }
    return;
  }
  const auto* const from = reinterpret_cast<const uint4*>(src);
  auto* const to = reinterpret_cast<uint4*>(dst);
  const int32_t count = bytes / 16;
  for (int32_t begin = lane; begin < count; begin += kWarp * kInFlight) {
    uint4 values[kInFlight];
#pragma unroll
    for (int b = 0; b < kInFlight; ++b) {
      if (begin + b * kWarp < count) values[b] = from[begin + b * kWarp];
    }
#pragma unroll
    for (int b = 0; b < kInFlight; ++b) {
      if (begin + b * kWarp < count) to[begin + b * kWarp] = values[b];
    }
  }
}

__device__ uint32_t pair(float a, float b, __half*) {
  const __half2 both = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&both);
}
__device__ uint32_t pair(float a, float b, __nv_bfloat16*) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&both);
}
__device__ void round_to(float value, __half* to) { *to = __float2half_rn(value); }
__device__ void round_to(float value, __nv_bfloat16* to) { *to = __float2bfloat16_rn(value); }

/// `count` float32 values to 16 bits.
template <class T>
__device__ void round_values(const float* src, T* dst, int32_t count, int lane) {
  if (count % 8 != 0 || !aligned(src) || !aligned(dst)) {
    for (int32_t i = lane; i < count; i += kWarp) round_to(src[i], dst + i);
    return;
  }
  const auto* const from = reinterpret_cast<const float4*>(src);
#pragma unroll 2
  for (int32_t i = lane; i < count / 8; i += kWarp) {
    const float4 a = from[2 * i];
    const float4 b = from[2 * i + 1];
    reinterpret_cast<uint4*>(dst)[i] = {pair(a.x, a.y, dst), pair(a.z, a.w, dst),
                                        pair(b.x, b.y, dst), pair(b.z, b.w, dst)};
  }
}

__global__ void __launch_bounds__(kRowThreads)
    copy_kernel(const __grid_constant__ RowParameters p) {
  for_each_unit(p, [](const RowUnit& u, const DeviceView& src, const DeviceView& dst, int lane) {
    const int64_t from = src.offset(u.src_row, u.src_head);
    const int64_t to = dst.offset(u.dst_row, u.dst_head);
    const int32_t count = u.heads * dst.dim;
    if (src.dtype == dst.dtype) {
      const int32_t bytes = size(src.dtype);
      copy_bytes(src.data + from * bytes, dst.data + to * bytes, count * bytes, lane);
      return;
    }
    const float* const values = reinterpret_cast<const float*>(src.data) + from;
    if (dst.dtype == DType::kF16) {
      round_values(values, reinterpret_cast<__half*>(dst.data) + to, count, lane);
    } else {
      round_values(values, reinterpret_cast<__nv_bfloat16*>(dst.data) + to, count, lane);
    }
  });
}

__device__ float2 halves(uint32_t both, bool is_f16) {
  return is_f16 ? __half22float2(*reinterpret_cast<const __half2*>(&both))
                : __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&both));
}

/// `count` values of 16 bits to float32.
__device__ void widen_values(const uint16_t* src, float* dst, bool is_f16, int32_t count,
                             int lane) {
  if (count % 8 != 0 || !aligned(src) || !aligned(dst)) {
    for (int32_t i = lane; i < count; i += kWarp) dst[i] = halves(src[i], is_f16).x;
    return;
  }
  auto* const to = reinterpret_cast<float4*>(dst);
#pragma unroll 2
  for (int32_t i = lane; i < count / 8; i += kWarp) {
    const uint4 v = reinterpret_cast<const uint4*>(src)[i];
    const float2 a = halves(v.x, is_f16);
    const float2 b = halves(v.y, is_f16);
    const float2 c = halves(v.z, is_f16);
    const float2 d = halves(v.w, is_f16);
    to[2 * i] = {a.x, a.y, b.x, b.y};
    to[2 * i + 1] = {c.x, c.y, d.x, d.y};
  }
}

__global__ void __launch_bounds__(kRowThreads)
    widen_kernel(const __grid_constant__ RowParameters p) {
  for_each_unit(p, [](const RowUnit& u, const DeviceView& src, const DeviceView& dst, int lane) {
    const auto* const from = reinterpret_cast<const uint16_t*>(src.data);
    widen_values(from + src.offset(u.src_row, u.src_head), dst.at<float>(u.dst_row, u.dst_head),
                 src.dtype == DType::kF16, u.heads * dst.dim, lane);
  });
}

__global__ void __launch_bounds__(kRowThreads)
    zero_kernel(const __grid_constant__ RowParameters p) {
  for_each_unit(p, [](const RowUnit& u, const DeviceView&, const DeviceView& dst, int lane) {
    const int32_t bytes = size(dst.dtype);
    char* const to = dst.data + dst.offset(u.dst_row, u.dst_head) * bytes;
    const int32_t all = u.heads * dst.dim * bytes;
    if (all % 16 == 0 && aligned(to)) {
      for (int32_t i = lane * 16; i < all; i += kWarp * 16) {
        *reinterpret_cast<uint4*>(to + i) = {0, 0, 0, 0};
      }
      return;
    }
    for (int32_t i = lane * 2; i < all; i += kWarp * 2) *reinterpret_cast<uint16_t*>(to + i) = 0;
  });
}

__global__ void __launch_bounds__(kRowThreads)
    lowest_kernel(const __grid_constant__ RowParameters p) {
  for_each_unit(p, [](const RowUnit& u, const DeviceView&, const DeviceView& dst, int lane) {
    for (int32_t i = lane; i < u.heads * dst.dim; i += kWarp) {
      dst.store(u.dst_row, u.dst_head, i, -INFINITY);
    }
  });
}

}  // namespace

void launch_moves(RowOp op, const RowParameters& p, dim3 blocks, cudaStream_t stream) {
  if (op == RowOp::kCopy) {
    copy_kernel<<<blocks, kRowThreads, 0, stream>>>(p);
  } else if (op == RowOp::kWiden) {
    widen_kernel<<<blocks, kRowThreads, 0, stream>>>(p);
  } else if (op == RowOp::kZero) {
    zero_kernel<<<blocks, kRowThreads, 0, stream>>>(p);
  } else {
    lowest_kernel<<<blocks, kRowThreads, 0, stream>>>(p);
  }
}

}  // namespace longspan::cuda
