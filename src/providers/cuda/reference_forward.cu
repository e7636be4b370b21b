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
  double scores[kChunk];
  double sums[kMostWarps];
  int64_t k_places[kChunk];
  int64_t v_places[kChunk];
};

/// The larger of what is there and `value`, whatever the order of the threads. A NaN stays.
template <class Float, class Bits>
__device__ void raise(Float* target, Float value, Float (*number)(Bits), Bits (*bits)(Float)) {
  Bits* const word = reinterpret_cast<Bits*>(target);
  Bits seen = *word;
  while (value > number(seen)) {
    const Bits before = atomicCAS(word, seen, bits(value));
    if (before == seen) return;
    seen = before;
  }
}

/// A row of one query head; all of it is the same on every thread of the block.
template <class T>
struct Row {
  const Forward& p;
  const TableTile& tile;
  int64_t index;  // of the query in the tile
  int64_t head;
  int64_t kv;
  PairTerms<T> terms;

  __device__ int64_t row() const { return tile.q_row + index; }
};

/// s.scores[n] = scale q.k of keys first + n. Begins with the keys' places, ends with a barrier.
template <class T>
__device__ int products(const Row<T>& r, int64_t first, int64_t last, Shared& s) {
  const int count = chunk_size(first, last);
  const Rows<T> keys = find_rows<T>(r.p.k, r.tile.k_row + first, count, r.kv, s.k_places);
  __syncthreads();
  dots(s.q, keys, r.p.q.dim, s.scores);
  __syncthreads();
  return count;
}

template <class T>
__device__ double score(const Row<T>& r, int64_t j, double product) {
  return r.terms.score(r.p.scale * product, r.index, j);
}

}  // namespace
}  // namespace longspan::cuda
