// What the kernels of cuda/reference share: one block a row, a chunk of the other side's rows at a
// time.
#pragma once

#include <cstdint>

#include "longspan/problem.h"
#include "mask/tokens.h"
#include "providers/cuda/reference_kernels.h"
#include "providers/cuda/terms.cuh"

namespace longspan::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kChunk = 128;  // rows at a time; a block has at least as many threads
inline constexpr int kMostThreads = kMaxDim;  // one for each number of a row
inline constexpr int kMostWarps = kMostThreads / kWarp;

/// Query head h reads key head (h + offset) / group.
struct Heads {
  int64_t queries = 0, keys = 0;
  int64_t group = 1, offset = 0;
};

inline Heads heads_of(const TileProblem& p) {
  return {.queries = p.heads_q, .keys = p.heads_kv, .group = p.group, .offset = p.group_offset};
}

__device__ inline int64_t key_head(const Heads& h, int64_t head) {
  return (head + h.offset) / h.group;
}

/// Of the sequences of a call; null where tiles are there as a whole.
struct LengthsView {
  const int32_t* q = nullptr;
  const int32_t* k = nullptr;
};

inline LengthsView lengths_view(const ActualLengths& lengths) {
  return {lengths.q.data(), lengths.k.data()};
}

/// What of a tile is there in this call.
__device__ inline TableTile live(TableTile tile, const LengthsView& lengths) {
  if (lengths.q == nullptr) return tile;
  tile.queries = tokens_below(tile.q_begin, tile.q_stride, tile.queries, lengths.q[tile.sequence]);
  tile.keys = tokens_below(tile.k_begin, tile.k_stride, tile.keys, lengths.k[tile.sequence]);
  return tile;
}

/// One launch over the rows that a wave of tiles writes, times heads.
struct WaveView {
  LengthsView lengths;
  const TableTile* tiles = nullptr;
  const int64_t* before = nullptr;
  int64_t count = 0;
  int64_t rows = 0;
};

inline WaveView wave_view(const DeviceTable& table, const TileWave& wave,
                          const ActualLengths& lengths) {
  return {.lengths = lengths_view(lengths),
          .tiles = static_cast<const TableTile*>(table.tiles.data()) + wave.first,
          .before = static_cast<const int64_t*>(table.before.data()) + wave.first,
          .count = static_cast<int64_t>(wave.count),
          .rows = wave.rows};
}

/// A row of a table's tile; it may lie behind what is live of the tile.
struct RowPlace {
  TableTile tile;
  int64_t index;
};

__device__ inline RowPlace find_row(const WaveView& wave, int64_t row) {
  int64_t low = 0;
  int64_t high = wave.count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (wave.before[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {live(wave.tiles[low], wave.lengths), row - wave.before[low]};
}

struct Span {
  int64_t first = 0, last = 0;
  __device__ bool empty() const { return first >= last; }
};

/// Indices in [0, count) that lie in the band [lo, hi] of `index`.
__device__ inline Span visible(int64_t lo, int64_t hi, int64_t index, int64_t count) {
  const auto clamp = [](int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
  };
  const int64_t first = clamp(index + lo, 0, count);
  return {first, clamp(index + hi + 1, first, count)};
}
__device__ inline Span visible_keys(const TableTile& t, int64_t i) {
  return visible(t.lo, t.hi, i, t.keys);
}
__device__ inline Span visible_queries(const TableTile& t, int64_t j) {
  return visible(-t.hi, -t.lo, j, t.queries);
}

/// Those of key head `kv`; empty when this rank holds none of its group.
__device__ inline Span query_heads(const Heads& h, int64_t kv) {
  const int64_t first = kv * h.group - h.offset;
  const int64_t last = first + h.group;
  return {first < 0 ? 0 : first, last < h.queries ? last : h.queries};
}

struct Sum {
  __device__ double operator()(double a, double b) const { return a + b; }
};
struct Largest {  // ignores NaN
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

/// The same on every lane: each step combines the same two numbers on both.
template <class Combine>
__device__ double over_warp(double value, Combine combine) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, step));
  }
  return value;
}

/// Over the threads of the block, in a fixed order, the same on each. `scratch`: kMostWarps.
template <class Combine>
__device__ double over_block(double value, Combine combine, double* scratch) {
  value = over_warp(value, combine);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = scratch[0];
  for (int warp = 1; warp < blockDim.x / kWarp; ++warp) value = combine(value, scratch[warp]);
  return value;
}

template <class T>
__device__ void load_row(const DeviceView& view, int64_t row, int64_t head, double* to) {
  if (threadIdx.x < view.dim) to[threadIdx.x] = wide(view.at<T>(row, head)[threadIdx.x]);
}

/// A chunk of rows of a view.
template <class T>
struct Rows {
  const T* data;
  const int64_t* places;  // of each row, in elements
  int count;

  /// sums[n] += weights[n] times number `threadIdx.x` of row n. Rows without weight may hold
  /// anything.
  __device__ double weighted(const double* weights, double sum) const {
    for (int n = 0; n < count; ++n) {
      const double weight = weights[n];
      if (weight != 0) sum += weight * wide(data[places[n] + threadIdx.x]);
    }
    return sum;
  }
};

/// Fills in `places`; they can be used after the next barrier.
template <class T>
__device__ Rows<T> find_rows(const DeviceView& view, int64_t first, int count, int64_t head,
                             int64_t* places) {
  if (threadIdx.x < count) places[threadIdx.x] = view.offset(first + threadIdx.x, head);
  return {reinterpret_cast<const T*>(view.data), places, count};
}

/// out[n] = row . rows[n], a warp each. A warp has several on their way at a time.
template <class T>
__device__ void dots(const double* row, const Rows<T>& rows, int dim, double* out) {
  constexpr int kAtOnce = 4;
  const int lane = threadIdx.x % kWarp;
  const int step = blockDim.x / kWarp * kAtOnce;
  for (int first = threadIdx.x / kWarp * kAtOnce; first < rows.count; first += step) {
    const T* others[kAtOnce];
    double sums[kAtOnce] = {};
    for (int n = 0; n < kAtOnce; ++n) {
      others[n] = rows.data + rows.places[min(first + n, rows.count - 1)];
    }
    for (int d = lane; d < dim; d += kWarp) {
      for (int n = 0; n < kAtOnce; ++n) sums[n] += row[d] * wide(others[n][d]);
    }
    for (int n = 0; n < kAtOnce; ++n) {
      const double sum = over_warp(sums[n], Sum{});
      if (lane == 0 && first + n < rows.count) out[first + n] = sum;
    }
  }
}

/// The rows of a chunk that starts at `first`.
__device__ inline int chunk_size(int64_t first, int64_t last) {
  return static_cast<int>(last - first < kChunk ? last - first : kChunk);
}

/// A block's threads: one for each number of a row, and for each row of a chunk.
inline unsigned threads_for(const TileProblem& p) {
  const int64_t widest = p.dim_qk > p.dim_v ? p.dim_qk : p.dim_v;
  const int64_t needed = widest > kChunk ? widest : kChunk;
  return static_cast<unsigned>((needed + kWarp - 1) / kWarp * kWarp);
}

/// Blocks walk over what is left when there are more items than a grid holds.
inline unsigned blocks_for(int64_t items) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return static_cast<unsigned>(items < kMost ? items : kMost);
}

/// Calls launch(T{}) with the type of the inputs.
template <class Launch>
void by_type(DType dtype, Launch&& launch) {
  switch (dtype) {
    case DType::kF64: launch(double{}); break;
    case DType::kF32: launch(float{}); break;
    case DType::kF16: launch(__half{}); break;
    case DType::kBF16: launch(__nv_bfloat16{}); break;
  }
}

}  // namespace longspan::cuda
