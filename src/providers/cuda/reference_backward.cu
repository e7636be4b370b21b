#include <cuda_runtime_api.h>

#include "providers/cuda/reference_rows.cuh"

namespace longspan::cuda {
namespace {

struct Backward {
  DeviceView q, k, v, dout, lse, delta, dq, dk, dv;
  BiasView dbias;
  TermValues terms;
  WaveView wave;
  Heads heads;
  double scale;
};

/// A row of q and of dout, or of k and of v, and a chunk of the other side's.
struct Shared {
  double qk[kMaxDim];
  double vo[kMaxDim];
  double products[kChunk];  // q.k, then its gradients
  double weights[kChunk];   // dout.v, then probabilities after dropout
  double sums[kMostWarps];
  int64_t qk_places[kChunk];
  int64_t vo_places[kChunk];
};

/// What a pair contributes. All is 0 where the pair is hidden or without weight.
struct Pair {
  double weight = 0;   // probability after dropout
  double bias = 0;     // gradient of the bias
  double product = 0;  // gradient of scale q.k
};

/// The pairs of one tile and one query head.
template <class T>
class Pairs {
 public:
  __device__ Pairs(const Backward& p, const TableTile& tile, int64_t head)
      : p_(p), tile_(tile), head_(head), terms_(p.terms, tile, head) {}

  /// Of query i and key j.
  __device__ Pair at(int64_t i, int64_t j, double q_k, double dout_v) const {
    const double lse = p_.lse.load(tile_.q_row + i, head_, 0);
    if (lse == -INFINITY) return {};
    const double product = p_.scale * q_k;
    const double probability = exp(terms_.score(product, i, j) - lse);
    if (probability == 0) return {};
    const double keep = terms_.keep(i, j);
    const double dp = keep == 0 ? 0 : keep * dout_v;
    const double ds = probability * (dp - p_.delta.load(tile_.q_row + i, head_, 0));
    return {probability * keep, ds, ds * terms_.derivative(product)};
  }

  __device__ int64_t bias_place(int64_t i, int64_t j) const { return terms_.place(p_.dbias, i, j); }

 private:
  const Backward& p_;
  const TableTile& tile_;
  int64_t head_;
  PairTerms<T> terms_;
};

/// A chunk of the other side's rows.
template <class T>
struct Chunk {
  Rows<T> qk;
  Rows<T> vo;
};

/// s.products and s.weights = the dot products of s.qk and s.vo with `count` rows from `row` on of
/// one head. Begins and ends with a barrier.
template <class T>
__device__ Chunk<T> meet(const DeviceView& qk, const DeviceView& vo, int64_t row, int count,
                         int64_t head, Shared& s) {
  __syncthreads();
  const Chunk<T> chunk{find_rows<T>(qk, row, count, head, s.qk_places),
                       find_rows<T>(vo, row, count, head, s.vo_places)};
  __syncthreads();
  dots(s.qk, chunk.qk, qk.dim, s.products);
  dots(s.vo, chunk.vo, vo.dim, s.weights);
  __syncthreads();
  return chunk;
}

__device__ void add(const DeviceView& view, int64_t row, int64_t head, double value) {
  if (threadIdx.x >= view.dim) return;
  view.store(row, head, threadIdx.x, view.load(row, head, threadIdx.x) + value);
}

template <class T>
__device__ void query_row(const Backward& p, const TableTile& tile, int64_t i, int64_t head,
                          Shared& s) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = tile.q_row + i;
  const Span seen = visible_keys(tile, i);
  if (i >= tile.queries || seen.empty()) return;
  const int64_t kv = key_head(p.heads, head);
  const Pairs<T> pairs(p, tile, head);
  load_row<T>(p.q, row, head, s.qk);
  load_row<T>(p.dout, row, head, s.vo);
  double dq = 0;
  for (int64_t first = seen.first; first < seen.last; first += kChunk) {
    const int count = chunk_size(first, seen.last);
    const Chunk<T> keys = meet<T>(p.k, p.v, tile.k_row + first, count, kv, s);
    if (thread < count) {
      s.products[thread] =
          pairs.at(i, first + thread, s.products[thread], s.weights[thread]).product;
    }
    __syncthreads();
    if (thread < p.q.dim) dq = keys.qk.weighted(s.products, dq);
  }
  add(p.dq, row, head, dq * p.scale);
}

template <class T>
__device__ void key_row(const Backward& p, const TableTile& tile, int64_t j, int64_t kv,
                        Shared& s) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = tile.k_row + j;
  const Span seen = visible_queries(tile, j);
  const Span heads = query_heads(p.heads, kv);
  if (j >= tile.keys || seen.empty() || heads.empty()) return;
  load_row<T>(p.k, row, kv, s.qk);
  load_row<T>(p.v, row, kv, s.vo);
  double dk = 0;
  double dv = 0;
  for (int64_t head = heads.first; head < heads.last; ++head) {
    const Pairs<T> pairs(p, tile, head);
    for (int64_t first = seen.first; first < seen.last; first += kChunk) {
      const int count = chunk_size(first, seen.last);
      const Chunk<T> queries = meet<T>(p.q, p.dout, tile.q_row + first, count, head, s);
      if (thread < count) {
        const Pair both = pairs.at(first + thread, j, s.products[thread], s.weights[thread]);
        s.products[thread] = both.product;
        s.weights[thread] = both.weight;
      }
      __syncthreads();
      if (thread < p.k.dim) dk = queries.qk.weighted(s.products, dk);
      if (thread < p.v.dim) dv = queries.vo.weighted(s.weights, dv);
    }
  }
  add(p.dk, row, kv, dk * p.scale);
  add(p.dv, row, kv, dv);
}

enum class Gradients { kQueries, kKeys };

template <class T, Gradients kGradients>
__global__ void __launch_bounds__(kMostThreads, 1)
    rows_kernel(const __grid_constant__ Backward p, int64_t units) {
  __shared__ Shared s;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t head = unit / p.wave.rows;
    const RowPlace place = find_row(p.wave, unit - head * p.wave.rows);
    if constexpr (kGradients == Gradients::kQueries) {
      query_row<T>(p, place.tile, place.index, head, s);
    } else {
      key_row<T>(p, place.tile, place.index, head, s);
    }
    __syncthreads();
  }
}

/// The bias's gradient of the queries of key j, a thread each: heads in order, then the next
/// queries. Adds to dbias, or to `total` where all pairs of a column share an element.
template <class T>
__device__ double bias_column(const Backward& p, const TableTile& tile, int64_t j, double total,
                              Shared& s) {
  const int thread = static_cast<int>(threadIdx.x);
  const Span seen = visible_queries(tile, j);
  for (int64_t first = seen.first; first < seen.last; first += kChunk) {
    const int count = chunk_size(first, seen.last);
    const int64_t i = first + thread;
    double sum = 0;
    for (int64_t head = 0; head < p.heads.queries; ++head) {
      const Pairs<T> pairs(p, tile, head);
      const int64_t kv = key_head(p.heads, head);
      load_row<T>(p.k, tile.k_row + j, kv, s.qk);
      load_row<T>(p.v, tile.k_row + j, kv, s.vo);
      meet<T>(p.q, p.dout, tile.q_row + first, count, head, s);
      if (thread >= count) continue;
      sum += pairs.at(i, j, s.products[thread], s.weights[thread]).bias;
      const bool last = head + 1 == p.heads.queries || p.dbias.by_head != 0;
      if (!last || p.dbias.shared()) continue;
      p.dbias.add(pairs.bias_place(i, j), sum);
      sum = 0;
    }
    total += sum;
  }
  return total;
}

/// A block has a column of the whole bias, so that no other one adds to it.
template <class T>
__global__ void __launch_bounds__(kMostThreads, 1)
    bias_kernel(const __grid_constant__ Backward p, Span columns) {
  __shared__ Shared s;
  for (int64_t k = columns.first + blockIdx.x; k < columns.last; k += gridDim.x) {
    double total = 0;
    for (int64_t t = 0; t < p.wave.count; ++t) {
      const TableTile tile = live(p.wave.tiles[t], p.wave.lengths);
      const int64_t j = (k - tile.k_begin) / tile.k_stride;
      if (k < tile.k_begin || j >= tile.keys || tile.k_begin + j * tile.k_stride != k) continue;
      total = bias_column<T>(p, tile, j, total, s);
    }
    total = over_block(total, Sum{}, s.sums);
    if (p.dbias.shared() && threadIdx.x == 0) p.dbias.add(k, total);
  }
}

Backward parameters(const TileProblem& problem, const BackwardTiles& call) {
  return {.q = device_view(call.q),
          .k = device_view(call.k),
          .v = device_view(call.v),
          .dout = device_view(call.dout),
          .lse = device_view(call.lse),
          .delta = device_view(call.delta),
          .dq = device_view(call.dq),
          .dk = device_view(call.dk),
          .dv = device_view(call.dv),
          .dbias = bias_view(call.dbias),
          .terms = term_values(call.terms),
          .wave = {},
          .heads = heads_of(problem),
          .scale = call.scale};
}

template <Gradients kGradients>
Status launch_rows(const TileProblem& problem, const BackwardTiles& call, const DeviceTable& table,
                   int64_t heads) {
  Backward p = parameters(problem, call);
  for (const TileWave& wave : table.waves) {
    p.wave = wave_view(table, wave, call.lengths);
    const int64_t units = wave.rows * heads;
    by_type(problem.dtype, [&](auto zero) {
      rows_kernel<decltype(zero), kGradients>
          <<<blocks_for(units), threads_for(problem), 0,
             static_cast<cudaStream_t>(call.stream.handle)>>>(p, units);
    });
    LONGSPAN_CHECK_OK(status(cudaGetLastError(), "launching cuda/reference backward"));
  }
  return {};
}

}  // namespace

Status load_backward(DType dtype) {
  cudaError_t code = cudaSuccess;
  const auto load = [&](auto kernel) {
    cudaFuncAttributes attributes;
    if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, kernel);
  };
  by_type(dtype, [&](auto zero) {
    load(rows_kernel<decltype(zero), Gradients::kQueries>);
    load(rows_kernel<decltype(zero), Gradients::kKeys>);
    load(bias_kernel<decltype(zero)>);
  });
  return status(code, "loading cuda/reference backward");
}

Status launch_query_gradients(const TileProblem& problem, const BackwardTiles& call,
                              const DeviceTable& queries) {
  return launch_rows<Gradients::kQueries>(problem, call, queries, problem.heads_q);
}

Status launch_key_gradients(const TileProblem& problem, const BackwardTiles& call,
                            const DeviceTable& keys) {
  return launch_rows<Gradients::kKeys>(problem, call, keys, problem.heads_kv);
}

Status launch_bias_gradient(const TileProblem& problem, const BackwardTiles& call,
                            const DeviceTable& tiles, Range columns) {
  if (columns.first >= columns.last) return {};
  Backward p = parameters(problem, call);
  p.wave = {.lengths = lengths_view(call.lengths),
            .tiles = static_cast<const TableTile*>(tiles.tiles.data()),
            .before = nullptr,
            .count = static_cast<int64_t>(tiles.tiles.size() / sizeof(TableTile)),
            .rows = 0};
  const Span all{columns.first, columns.last};
  by_type(problem.dtype, [&](auto zero) {
    bias_kernel<decltype(zero)><<<blocks_for(all.last - all.first), threads_for(problem), 0,
                                  static_cast<cudaStream_t>(call.stream.handle)>>>(p, all);
  });
  return status(cudaGetLastError(), "launching cuda/reference's gradient of the bias");
}

}  // namespace longspan::cuda
