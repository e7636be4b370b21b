#include "cuda/runtime.h"
#include "providers/rows/kernels.h"
#include "providers/rows/octets.cuh"

namespace longspan::rows {
namespace {

struct PackParameters {
  EntryList list;
  Vectorized from;
  void* to;
  int64_t rows, heads;
  bool keys;
  uint32_t flipped;  // bits of every element
};

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ PackParameters p) {
  const Unit u = unit_of<kLanes>(p.rows, p.heads);
  const int32_t dim = p.from.view.dim;
  if (!u.holds(dim)) return;
  const int64_t row = row_of_view(p.list, u.row, p.keys);
  Octet<T> octet = zeros<T>();
  if (row >= 0) {
    octet = load_octet<T>(p.from, row, u.head, u.lane);
    for (T& value : octet.values) flip_bits(value, p.flipped);
  }
  pack_octet(p.to, u, p.heads, dim, octet);
}

struct StatisticsParameters {
  EntryList list;
  DeviceView lse;
  float* packed;
  int64_t heads;
  bool packs;
};

__global__ void __launch_bounds__(kThreads)
    statistics_kernel(const __grid_constant__ StatisticsParameters p) {
  const Unit u = unit_of<1>(p.list.rows_q, p.heads);
  if (!u.inside) return;
  float* const packed = p.packed + u.row * p.heads + u.head;
  const int64_t row = row_of_view(p.list, u.row, false);
  if (row < 0) {
    if (p.packs) *packed = kInfinity;
    return;
  }
  float* const lse = p.lse.at<float>(row, u.head);
  if (p.packs) {
    // exp(score - lse) is 0 for rows that see no key of the whole problem.
    *packed = *lse == -kInfinity ? kInfinity : *lse;
  } else {
    *lse = *packed;
  }
}

struct BackwardParameters {
  EntryList list;
  Vectorized dout;
  DeviceView delta;
  void* packed_dout;
  void* o;
  int64_t heads;
};

/// o such that the sum of dout * o over the lanes of a unit is `rest`. Elements are taken from the
/// largest |dout| on: three make float32 accuracy, more only where one would leave the type.
template <class T, int kLanes>
__device__ Octet<T> with_product(const Octet<T>& dout, float rest, int lane) {
  const uint32_t lanes = (kLanes == 32 ? 0xffffffffu : (1u << kLanes % 32) - 1)
                         << (threadIdx.x % 32 / kLanes * kLanes);
  Octet<T> o;
  uint32_t keys[kVector];  // |dout|, whose bits sort like its value, over the element's number
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const uint32_t bits = bits_of(dout.values[i]) & 0x7fffu;
    keys[i] = bits == 0 ? 0 : bits << 8 | static_cast<uint32_t>(lane * kVector + i);
    o.values[i] = rounded<T>(0);
  }
  for (int left = 3; left > 0 && rest != 0;) {
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) best = max(best, keys[i]);
    best = __reduce_max_sync(lanes, best);
    if (best == 0) break;
    float divisor = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (keys[i] == best) divisor = to_float(dout.values[i]);
    }
    divisor = __shfl_sync(lanes, divisor, static_cast<int>((best & 0xff) / kVector), kLanes);
    const float quotient = rest / divisor;
    const T taken = rounded<T>(quotient);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (keys[i] != best) continue;
      o.values[i] = taken;
      keys[i] = 0;
    }
    rest = fmaf(-divisor, to_float(taken), rest);
    const bool clipped = fabsf(quotient) > largest<T>() && !isinf(quotient);
    if (!clipped) --left;
  }
  return o;
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    backward_rows_kernel(const __grid_constant__ BackwardParameters p) {
  const Unit u = unit_of<kLanes>(p.list.rows_q, p.heads);
  if (!u.inside) return;
  const int32_t dim = p.dout.view.dim;
  const int64_t row = row_of_view(p.list, u.row, false);
  Octet<T> dout = zeros<T>();
  if (row >= 0 && u.holds(dim)) dout = load_octet<T>(p.dout, row, u.head, u.lane);
  const float delta = row < 0 ? 0 : *p.delta.at<float>(row, u.head);
  const Octet<T> o = with_product<T, kLanes>(dout, delta, u.lane);
  if (!u.holds(dim)) return;
  pack_octet(p.o, u, p.heads, dim, o);
  if (p.packed_dout != nullptr) pack_octet(p.packed_dout, u, p.heads, dim, dout);
}

}  // namespace

Status pack(const Pack& t, Stream stream) {
  const PackParameters p = {.list = t.list,
                            .from = vectorized(t.from),
                            .to = t.to,
                            .rows = t.keys ? t.list.rows_k : t.list.rows_q,
                            .heads = t.heads,
                            .keys = t.keys,
                            .flipped = t.negated ? 0x8000u : 0u};
  for_type<kRowLanes>(t.from.dtype, t.from.dim, [&]<class T, int kLanes>() {
    pack_kernel<T, kLanes><<<blocks(p.rows * p.heads, kLanes), kThreads, 0, native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the packing of rows");
}

namespace {

Status launch_statistics(const Statistics& s, bool packs, Stream stream) {
  const StatisticsParameters p = {.list = s.list,
                                  .lse = cuda::device_view(s.lse),
                                  .packed = s.packed,
                                  .heads = s.lse.heads,
                                  .packs = packs};
  statistics_kernel<<<blocks(s.list.rows_q * p.heads, 1), kThreads, 0, native(stream)>>>(p);
  return cuda::status(cudaGetLastError(), "launching the copy of LSE");
}

}  // namespace

Status pack_statistics(const Statistics& s, Stream stream) {
  return launch_statistics(s, true, stream);
}

Status unpack_statistics(const Statistics& s, Stream stream) {
  return launch_statistics(s, false, stream);
}

Status make_backward_rows(const BackwardRows& r, Stream stream) {
  const BackwardParameters p = {.list = r.list,
                                .dout = vectorized(r.dout),
                                .delta = cuda::device_view(r.delta),
                                .packed_dout = r.packed_dout,
                                .o = r.o,
                                .heads = r.dout.heads};
  for_type(r.dout.dtype, r.dout.dim, [&]<class T, int kLanes>() {
    backward_rows_kernel<T, kLanes>
        <<<blocks(r.list.rows_q * p.heads, kLanes), kThreads, 0, native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the rows of backward");
}

}  // namespace longspan::rows
