// Strided views as kernels see them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "longspan/tensor.h"

namespace longspan::cuda {

struct DeviceView {
  char* data = nullptr;
  const int32_t* pages = nullptr;
  int64_t seq = 1;
  int64_t stride_batch = 0, stride_seq = 0, stride_head = 0;
  int32_t dim = 0;
  DType dtype = DType::kF32;

  __device__ int64_t offset(int64_t row, int64_t head) const {
    const int64_t batch = row < seq ? 0 : row / seq;
    const int64_t block = pages == nullptr ? batch : pages[batch];
    return block * stride_batch + (row - batch * seq) * stride_seq + head * stride_head;
  }
  template <class T>
  __device__ T* at(int64_t row, int64_t head) const {
    return reinterpret_cast<T*>(data) + offset(row, head);
  }
  /// Element `i` of a row of any type, as float64.
  __device__ double load(int64_t row, int64_t head, int32_t i) const {
    const int64_t place = offset(row, head) + i;
    switch (dtype) {
      case DType::kF64: return reinterpret_cast<const double*>(data)[place];
      case DType::kF32: return reinterpret_cast<const float*>(data)[place];
      case DType::kF16: return __half2float(reinterpret_cast<const __half*>(data)[place]);
      case DType::kBF16:
        return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(data)[place]);
    }
    return 0;
  }
  /// Rounds to the type of the view.
  __device__ void store(int64_t row, int64_t head, int32_t i, double value) const {
    const int64_t place = offset(row, head) + i;
    switch (dtype) {
      case DType::kF64: reinterpret_cast<double*>(data)[place] = value; break;
      case DType::kF32: reinterpret_cast<float*>(data)[place] = static_cast<float>(value); break;
      case DType::kF16: reinterpret_cast<__half*>(data)[place] = __double2half(value); break;
      case DType::kBF16:
        reinterpret_cast<__nv_bfloat16*>(data)[place] = __double2bfloat16(value);
        break;
    }
  }
};

inline DeviceView device_view(const TensorView& v) {
  return {static_cast<char*>(v.data),
          v.pages,
          v.seq > 0 ? v.seq : 1,
          v.stride_batch,
          v.stride_seq,
          v.stride_head,
          static_cast<int32_t>(v.dim),
          v.dtype};
}

}  // namespace longspan::cuda
