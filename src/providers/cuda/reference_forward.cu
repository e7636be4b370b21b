#include <cuda_runtime_api.h>

#include "providers/cuda/reference_rows.cuh"

namespace longspan::cuda {
namespace {

struct Forward {
  DeviceView q, k, v, o, lse, max_logit;
  TermValues terms;
  WaveView wave;
  Heads heads;
  double scale;
};

struct Shared {
  double q[kMaxDim];
  double scores[kChunk];  // products, then probabilities
  double sums[kMostWarps];
  int64_t k_places[kChunk];
  int64_t v_places[kChunk];
};

/// A query row of one head, the same on every thread of the block.
template <class T>
struct Row {
  const Forward& p;
  const TableTile& tile;
  int64_t index;  // in the tile
  int64_t row;    // of q
  int64_t head;
  int64_t kv;
  PairTerms<T> terms;
};

// The larger of what is there and `value`, in whatever order blocks come. A NaN stays. Adding 0
// makes one zero of two.

__device__ void raise(float* target, float value) {
  value += 0.0f;
  int seen = __float_as_int(*target);
  while (value > __int_as_float(seen)) {
    const int before = atomicCAS(reinterpret_cast<int*>(target), seen, __float_as_int(value));
    if (before == seen) return;
    seen = before;
  }
}

__device__ void raise(double* target, double value) {
  using Bits = unsigned long long;
  value += 0.0;
  Bits seen = static_cast<Bits>(__double_as_longlong(*target));
  while (value > __longlong_as_double(static_cast<long long>(seen))) {
    const Bits before = atomicCAS(reinterpret_cast<Bits*>(target), seen,
                                  static_cast<Bits>(__double_as_longlong(value)));
    if (before == seen) return;
    seen = before;
  }
}

__device__ void raise(const DeviceView& view, int64_t head, double value) {
  if (view.dtype == DType::kF64) {
    raise(view.at<double>(0, head), value);
  } else {
    raise(view.at<float>(0, head), static_cast<float>(value));
  }
}

/// s.scores[n] = q.k of keys first + n; returns how many. Ends with a barrier. What it overwrites
/// may have been read up to the last one.
template <class T>
__device__ int products(const Row<T>& r, int64_t first, int64_t last, Shared& s) {
  const int count = chunk_size(first, last);
  const Rows<T> keys = find_rows<T>(r.p.k, r.tile.k_row + first, count, r.kv, s.k_places);
  __syncthreads();
  dots(s.q, keys, r.p.q.dim, s.scores);
  __syncthreads();
  return count;
}

/// Merges o / sum, the result over keys of log-sum-exp `lse`, into the carried row.
template <class T>
__device__ void carry(const Row<T>& r, double carried, double o, double sum, double lse) {
  double keep = 0;
  double weight = 1;
  if (carried != -INFINITY) {
    const double top = fmax(carried, lse);
    const double total = exp(carried - top) + exp(lse - top);
    keep = exp(carried - top) / total;
    weight = exp(lse - top) / total;
    lse = top + log(total);
  }
  if (threadIdx.x < r.p.o.dim) {
    const double before = keep != 0 ? keep * r.p.o.load(r.row, r.head, threadIdx.x) : 0;
    r.p.o.store(r.row, r.head, threadIdx.x, o / sum * weight + before);
  }
  if (threadIdx.x == 0) r.p.lse.store(r.row, r.head, 0, lse);
}

template <class T>
__device__ void attend(const Row<T>& r, Span seen, Shared& s) {
  const int thread = static_cast<int>(threadIdx.x);
  const double carried = r.p.lse.load(r.row, r.head, 0);
  load_row<T>(r.p.q, r.row, r.head, s.q);
  const auto score = [&](int64_t j) {
    return r.terms.score(r.p.scale * s.scores[thread], r.index, j);
  };
  bool any = false;  // not max > -inf: a NaN must stay visible
  double max = -INFINITY;
  for (int64_t first = seen.first; first < seen.last; first += kChunk) {
    const int count = products(r, first, seen.last, s);
    if (thread >= count) continue;
    const double here = score(first + thread);
    any |= here != -INFINITY;
    max = fmax(max, here);
  }
  if (__syncthreads_or(any) == 0) return;
  max = over_block(max, Largest{}, s.sums);
  if (thread == 0 && r.p.max_logit.data != nullptr) {
    raise(r.p.max_logit, r.p.terms.head_begin + r.head, max);
  }
  double sum = 0;
  double o = 0;
  for (int64_t first = seen.first; first < seen.last; first += kChunk) {
    const int count = products(r, first, seen.last, s);
    const Rows<T> values = find_rows<T>(r.p.v, r.tile.k_row + first, count, r.kv, s.v_places);
    if (thread < count) {
      const double here = score(first + thread);
      const double p = here == -INFINITY ? 0 : exp(here - max);
      sum += p;
      s.scores[thread] = p == 0 ? 0 : p * r.terms.keep(r.index, first + thread);
    }
    __syncthreads();
    if (thread < r.p.v.dim) o = values.weighted(s.scores, o);
  }
  sum = over_block(sum, Sum{}, s.sums);
  carry(r, carried, o, sum, max + log(sum));
}

template <class T>
__global__ void __launch_bounds__(kMostThreads, 1)
    forward_kernel(const __grid_constant__ Forward p, int64_t units) {
  __shared__ Shared s;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t head = unit / p.wave.rows;
    const RowPlace place = find_row(p.wave, unit - head * p.wave.rows);
    const Span seen = visible_keys(place.tile, place.index);
    if (place.index >= place.tile.queries || seen.empty()) continue;
    const Row<T> r{.p = p,
                   .tile = place.tile,
                   .index = place.index,
                   .row = place.tile.q_row + place.index,
                   .head = head,
                   .kv = key_head(p.heads, head),
                   .terms = PairTerms<T>(p.terms, place.tile, head)};
    attend(r, seen, s);
    __syncthreads();
  }
}

}  // namespace

Status load_forward(DType dtype) {
  cudaFuncAttributes attributes;
  cudaError_t code = cudaSuccess;
  by_type(dtype, [&](auto zero) {
    code = cudaFuncGetAttributes(&attributes, forward_kernel<decltype(zero)>);
  });
  return status(code, "loading cuda/reference forward");
}

Status launch_forward(const TileProblem& problem, const ForwardTiles& call,
                      const DeviceTable& queries) {
  Forward p{.q = device_view(call.q),
            .k = device_view(call.k),
            .v = device_view(call.v),
            .o = device_view(call.o),
            .lse = device_view(call.lse),
            .max_logit = device_view(call.max_logit),
            .terms = term_values(call.terms),
            .wave = {},
            .heads = heads_of(problem),
            .scale = call.scale};
  for (const TileWave& wave : queries.waves) {
    p.wave = wave_view(queries, wave, call.lengths);
    const int64_t units = wave.rows * problem.heads_q;
    by_type(problem.dtype, [&](auto zero) {
      forward_kernel<decltype(zero)><<<blocks_for(units), threads_for(problem), 0,
                                       static_cast<cudaStream_t>(call.stream.handle)>>>(p, units);
    });
    LONGSPAN_CHECK_OK(status(cudaGetLastError(), "launching cuda/reference forward"));
  }
  return {};
}

}  // namespace longspan::cuda
