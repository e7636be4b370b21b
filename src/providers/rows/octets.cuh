// What the kernels share: rows of views and of packed scratch memory, an octet of elements a lane.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/device_view.cuh"
#include "providers/rows/kernels.h"

namespace longspan::rows {

using cuda::DeviceView;

constexpr int kThreads = 256;
constexpr int kVector = 8;     // 16-bit elements of a load
constexpr int kRowLanes = 64;  // enough for rows of 512 elements
constexpr float kInfinity = __builtin_huge_valf();

inline __device__ float to_float(float x) { return x; }
inline __device__ float to_float(__half x) { return __half2float(x); }
inline __device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

inline __device__ uint32_t bits_of(__half x) { return __half_as_ushort(x); }
inline __device__ uint32_t bits_of(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }

inline __device__ void flip_bits(__half& x, uint32_t bits) {
  x = __ushort_as_half(static_cast<unsigned short>(bits_of(x) ^ bits));
}
inline __device__ void flip_bits(__nv_bfloat16& x, uint32_t bits) {
  x = __ushort_as_bfloat16(static_cast<unsigned short>(bits_of(x) ^ bits));
}

template <class T>
__device__ constexpr float largest() {
  return std::is_same_v<T, __half> ? 65504.0f : 3.3895e38f;
}

/// To the nearest value of the type. What is finite stays so.
template <class T>
__device__ T rounded(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  const bool clipped = fabsf(x) > largest<T>() && !isinf(x);
  const float inside = clipped ? copysignf(largest<T>(), x) : x;
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(inside);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(inside);
}

/// Eight neighbours of a row.
template <class T>
struct alignas(16) Octet {
  T values[kVector];
};

template <class T>
__device__ Octet<T> zeros() {
  Octet<T> octet;
  for (T& value : octet.values) value = rounded<T>(0);
  return octet;
}

/// An octet from and to aligned memory, 16 bytes an access.
/// NOTE: the compiler splits assignments of octets into accesses of single elements; __stwb is a
/// plain store that it leaves whole.
template <class T>
__device__ Octet<T> load_wide(const T* from) {
  Octet<T> octet;
#pragma unroll
  for (size_t i = 0; i < sizeof octet / sizeof(uint4); ++i) {
    const uint4 bits = reinterpret_cast<const uint4*>(from)[i];
    memcpy(reinterpret_cast<char*>(&octet) + i * sizeof bits, &bits, sizeof bits);
  }
  return octet;
}
template <class T>
__device__ void store_wide(T* to, const Octet<T>& octet) {
#pragma unroll
  for (size_t i = 0; i < sizeof octet / sizeof(uint4); ++i) {
    uint4 bits;
    memcpy(&bits, reinterpret_cast<const char*>(&octet) + i * sizeof bits, sizeof bits);
    __stwb(reinterpret_cast<uint4*>(to) + i, bits);
  }
}

struct Vectorized {
  DeviceView view;
  bool wide = false;  // whether octets of rows may be reached in 16-byte accesses
};

inline Vectorized vectorized(const TensorView& v) {
  const int64_t unit = 16 / size_of(v.dtype);
  const bool wide = reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride_batch % unit == 0 &&
                    v.stride_seq % unit == 0 && v.stride_head % unit == 0;
  return {cuda::device_view(v), wide};
}

/// The entry of scratch row `row`.
inline __device__ const DeviceEntry& entry_of(const EntryList& list, int64_t row, bool keys) {
  const DeviceEntry* const entries = list.entries;
  const auto begin = [&](int64_t i) { return keys ? entries[i].k_begin : entries[i].q_begin; };
  int64_t low = 0;
  int64_t high = list.count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (begin(middle) <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return entries[low];
}

/// Where scratch row `row` belongs; negative behind the rows of a cut entry.
inline __device__ int64_t row_of_view(const EntryList& list, int64_t row, bool keys) {
  const DeviceEntry& e = entry_of(list, row, keys);
  const int64_t index = row - (keys ? e.k_begin : e.q_begin);
  if (index >= (keys ? e.nk : e.nq)) return -1;
  return (keys ? e.k_row : e.q_row) + index;
}

/// A row of one head, worked on by `kLanes` neighbouring threads, one octet each.
struct Unit {
  int64_t row, head;
  int lane;
  bool inside;  // whether the unit exists
  __device__ bool holds(int32_t dim) const { return inside && lane * kVector < dim; }
};

template <int kLanes>
__device__ Unit unit_of(int64_t rows, int64_t heads) {
  const auto index =
      static_cast<uint32_t>((uint64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes);
  const auto count = static_cast<uint32_t>(heads);
  const uint32_t row = index / count;
  return {row, index - row * count, static_cast<int>(threadIdx.x % kLanes), row < rows};
}

template <class T>
__device__ Octet<T> load_octet(const Vectorized& v, int64_t row, int64_t head, int lane) {
  const T* const from = v.view.at<T>(row, head) + lane * kVector;
  if (v.wide) return load_wide(from);
  Octet<T> result;
  for (int i = 0; i < kVector; ++i) result.values[i] = from[i];
  return result;
}

template <class T>
__device__ void store_octet(const Vectorized& v, int64_t row, int64_t head, int lane,
                            const Octet<T>& octet) {
  T* const to = v.view.at<T>(row, head) + lane * kVector;
  if (v.wide) {
    store_wide(to, octet);
  } else {
    for (int i = 0; i < kVector; ++i) to[i] = octet.values[i];
  }
}

/// to = keep * to + weight * add, in float32. Where nothing is kept `to` is not read.
template <class To, class T>
__device__ void blend(const Vectorized& to, int64_t row, int64_t head, int lane, float keep,
                      const Octet<T>& add, float weight) {
  Octet<To> result;
  if (keep != 0) result = load_octet<To>(to, row, head, lane);
  for (int i = 0; i < kVector; ++i) {
    const float before = keep != 0 ? keep * to_float(result.values[i]) : 0;
    result.values[i] = rounded<To>(before + weight * to_float(add.values[i]));
  }
  store_octet(to, row, head, lane, result);
}

/// Where a unit's octet starts in packed rows.
template <class T>
__device__ T* octet_at(T* packed, const Unit& u, int64_t heads, int32_t dim) {
  return packed + (u.row * heads + u.head) * dim + u.lane * kVector;
}

template <class T>
__device__ Octet<T> packed_octet(const void* packed, const Unit& u, int64_t heads, int32_t dim) {
  return load_wide(octet_at(static_cast<const T*>(packed), u, heads, dim));
}

template <class T>
__device__ void pack_octet(void* packed, const Unit& u, int64_t heads, int32_t dim,
                           const Octet<T>& octet) {
  store_wide(octet_at(static_cast<T*>(packed), u, heads, dim), octet);
}

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

/// Calls run.operator()<T, kLanes>() with lanes for octets of `dim` elements: those of a warp,
/// which have 256, or kMost.
template <int kMost = 32, class Run>
void for_type(DType dtype, int64_t dim, Run&& run) {
  const auto for_lanes = [&]<class T>() {
    if (dim <= 8 * kVector) {
      run.template operator()<T, 8>();
    } else if (dim <= 16 * kVector) {
      run.template operator()<T, 16>();
    } else if (dim <= 32 * kVector) {
      run.template operator()<T, 32>();
    } else {
      run.template operator()<T, kMost>();
    }
  };
  if (dtype == DType::kBF16) {
    for_lanes.template operator()<__nv_bfloat16>();
  } else {
    for_lanes.template operator()<__half>();
  }
}

inline unsigned blocks(int64_t units, int lanes) {
  return static_cast<unsigned>((units * lanes + kThreads - 1) / kThreads);
}

}  // namespace longspan::rows
