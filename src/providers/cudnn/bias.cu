#include <algorithm>

#include "cuda/runtime.h"
#include "providers/cuda/terms.cuh"
#include "providers/cudnn/bias.h"
#include "providers/rows/octets.cuh"

namespace longspan::cudnn {
namespace {

using cuda::BiasView;
using rows::kThreads;
using rows::kVector;
using rows::Octet;

constexpr int kMostBlocks = 132 * 16;
constexpr int kColumns = 32;          // of a block that adds up whole columns
constexpr int kColumnThreads = 1024;  // 32 for each column

__device__ bool sees(const EntryTokens& tokens, int64_t i, int64_t j) {
  return tokens.lo <= j - i && j - i <= tokens.hi;
}

struct PackParameters {
  Entry entry;
  BiasView bias;
  int64_t head_begin;
  uint32_t heads, rows, octets;  // octets: of a row
  void* to;
};

/// Keys j to j + 7 of row i.
template <class T>
__device__ Octet<T> bias_octet(const PackParameters& p, int64_t head, int64_t i, int64_t j) {
  Octet<T> result = rows::zeros<T>();
  const Entry& e = p.entry;
  const EntryTokens& t = e.tokens;
  if (i >= e.nq || j >= e.nk) return result;
  const int64_t place = p.bias.place(t.sequence, p.head_begin + head, t.q_begin + i * t.q_stride,
                                     t.k_begin + j * t.k_stride);
  const T* const from = static_cast<const T*>(p.bias.data) + place;
  const bool column = p.bias.shared() && p.rows == 1;
  const bool all =
      j + kVector <= e.nk && (column || (sees(t, i, j) && sees(t, i, j + kVector - 1)));
  if (all && t.k_stride == 1 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    return rows::load_wide(from);
  }
  for (int x = 0; x < kVector && j + x < e.nk; ++x) {
    if (column || sees(t, i, j + x)) result.values[x] = from[x * t.k_stride];
  }
  return result;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pack_bias_kernel(const __grid_constant__ PackParameters p) {
  const uint32_t count = p.heads * p.rows * p.octets;
  for (uint32_t at = blockIdx.x * kThreads + threadIdx.x; at < count; at += gridDim.x * kThreads) {
    const uint32_t row = at / p.octets;
    const uint32_t head = row / p.rows;
    const int64_t j = int64_t{at - row * p.octets} * kVector;
    rows::store_wide(static_cast<T*>(p.to) + int64_t{at} * kVector,
                     bias_octet<T>(p, head, row - head * p.rows, j));
  }
}

struct GradientParameters {
  Entry entry;
  BiasView dbias;
  int64_t head_begin;
  int64_t heads, rows, keys;
  const void* packed;

  template <class T>
  __device__ float gradient(int64_t head, int64_t i, int64_t j) const {
    return rows::to_float(static_cast<const T*>(packed)[(head * rows + i) * keys + j]);
  }
  __device__ void add(int64_t head, int64_t i, int64_t j, float value) const {
    const EntryTokens& t = entry.tokens;
    dbias.add(dbias.place(t.sequence, head_begin + head, t.q_begin + i * t.q_stride,
                          t.k_begin + j * t.k_stride),
              value);
  }
};

/// A pair of a head a thread, or of all heads where these share elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_pairs_kernel(const __grid_constant__ GradientParameters p) {
  const int64_t shared = p.dbias.by_head == 0 ? p.heads : 1;
  const int64_t pairs = p.entry.nq * p.entry.nk;
  const int64_t count = pairs * (p.heads / shared);
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < count;
       at += int64_t{gridDim.x} * kThreads) {
    const int64_t first = at / pairs;
    const int64_t pair = at - first * pairs;
    const int64_t i = pair / p.entry.nk;
    const int64_t j = pair - i * p.entry.nk;
    if (!sees(p.entry.tokens, i, j)) continue;
    float sum = 0;
    for (int64_t head = first; head < first + shared; ++head) sum += p.gradient<T>(head, i, j);
    p.add(first, i, j, sum);
  }
}

/// Columns of neighbouring keys a block; threads of a column take every 32nd of its rows.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    add_columns_kernel(const __grid_constant__ GradientParameters p) {
  constexpr int kParts = kColumnThreads / kColumns;
  __shared__ float sums[kParts][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int part = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t j = int64_t{blockIdx.x} * kColumns + column;
  float sum = 0;
  for (int64_t head = 0; head < p.heads && j < p.entry.nk; ++head) {
    for (int64_t i = part; i < p.entry.nq; i += kParts) {
      if (sees(p.entry.tokens, i, j)) sum += p.gradient<T>(head, i, j);
    }
  }
  sums[part][column] = sum;
  __syncthreads();
  if (part != 0 || j >= p.entry.nk) return;
  for (int other = 1; other < kParts; ++other) sum += sums[other][column];
  p.add(0, 0, j, sum);
}

template <class Run>
void for_type(DType dtype, Run&& run) {
  if (dtype == DType::kBF16) {
    run.template operator()<__nv_bfloat16>();
  } else {
    run.template operator()<__half>();
  }
}

unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>(std::min<int64_t>((threads + kThreads - 1) / kThreads, kMostBlocks));
}

}  // namespace

Status pack_bias(const BiasPack& pack, Stream stream) {
  const PackParameters p = {.entry = pack.entry,
                            .bias = cuda::bias_view(pack.bias),
                            .head_begin = pack.head_begin,
                            .heads = static_cast<uint32_t>(pack.shape.heads),
                            .rows = static_cast<uint32_t>(pack.shape.rows),
                            .octets = static_cast<uint32_t>(bias_width(pack.keys) / kVector),
                            .to = pack.to};
  const unsigned blocks = blocks_of(pack.shape.heads * pack.shape.rows * p.octets);
  for_type(pack.bias.dtype, [&]<class T>() {
    pack_bias_kernel<T><<<blocks, kThreads, 0, rows::native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the packing of a bias for cuDNN");
}

Status add_bias_gradient(const BiasGradient& g, Stream stream) {
  const GradientParameters p = {.entry = g.entry,
                                .dbias = cuda::bias_view(g.dbias),
                                .head_begin = g.head_begin,
                                .heads = g.heads,
                                .rows = g.rows,
                                .keys = g.keys,
                                .packed = g.packed};
  for_type(g.dtype, [&]<class T>() {
    if (g.dbias.rows() == 1 && g.dbias.heads == 1) {  // shared by all pairs of a key
      const auto blocks = static_cast<unsigned>((g.entry.nk + kColumns - 1) / kColumns);
      add_columns_kernel<T><<<blocks, kColumnThreads, 0, rows::native(stream)>>>(p);
    } else {
      const unsigned blocks = blocks_of(g.entry.nq * g.entry.nk * g.heads);
      add_pairs_kernel<T><<<blocks, kThreads, 0, rows::native(stream)>>>(p);
    }
  });
  return cuda::status(cudaGetLastError(), "launching the sums of a bias's gradient");
}

}  // namespace longspan::cudnn
