#include "cuda/runtime.h"
#include "providers/cudnn/kernels.h"
#include "providers/cudnn/rows.cuh"

namespace longspan::cudnn {
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
  Octet<T> octet = load_octet<T>(p.from, row_of_view(p.list, u.row, p.keys), u.head, u.lane);
  for (T& value : octet.values) flip_bits(value, p.flipped);
  *octet_at<T>(p.to, u, p.heads, dim) = octet;
}

struct MergeParameters {
  EntryList list;
  Vectorized o;
  DeviceView lse;
  void* part;
  const float* stats;
  int64_t heads;
};

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const __grid_constant__ MergeParameters p) {
  const Unit u = unit_of<kLanes>(p.list.rows_q, p.heads);
  int64_t row = 0;
  float part = -kInfinity;
  float before = -kInfinity;
  if (u.inside) {
    row = row_of_view(p.list, u.row, false);
    part = p.stats[place_of_stats(p.list, u.row, u.head, p.heads)];
    before = *p.lse.at<float>(row, u.head);
  }
  __syncwarp();  // all lanes have read the LSE that one of them writes
  if (part == -kInfinity) return;
  float keep = 0;
  float weight = 1;
  float lse = part;
  if (before != -kInfinity) {
    const float top = fmaxf(before, part);
    keep = expf(before - top);
    weight = expf(part - top);
    const float total = keep + weight;
    keep /= total;
    weight /= total;
    lse = top + logf(total);
  }
  if (u.lane == 0) *p.lse.at<float>(row, u.head) = lse;
  const int32_t dim = p.o.view.dim;
  if (!u.holds(dim)) return;
  blend<T>(p.o, row, u.head, u.lane, keep, *octet_at<T>(p.part, u, p.heads, dim), weight);
}

struct BackwardParameters {
  EntryList list;
  Vectorized dout;
  DeviceView lse, delta;
  void* packed_dout;
  void* o;
  float* stats;
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
  Octet<T> dout;
  for (T& value : dout.values) value = rounded<T>(0);
  if (u.holds(dim)) dout = load_octet<T>(p.dout, row, u.head, u.lane);
  const float delta = *p.delta.at<float>(row, u.head);
  const Octet<T> o = with_product<T, kLanes>(dout, delta, u.lane);
  if (u.holds(dim)) {
    *octet_at<T>(p.packed_dout, u, p.heads, dim) = dout;
    *octet_at<T>(p.o, u, p.heads, dim) = o;
  }
  if (u.lane != 0) return;
  const float lse = *p.lse.at<float>(row, u.head);
  // exp(score - lse) is 0 for rows that see no key of the whole problem.
  p.stats[place_of_stats(p.list, u.row, u.head, p.heads)] = lse == -kInfinity ? kInfinity : lse;
}

struct Part {
  Vectorized view;
  void* packed = nullptr;
  int64_t rows = 0, heads = 0;
  float factor = 1;
  bool keys = false;
};

struct GradientParameters {
  EntryList list;
  Part parts[3];
};

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const __grid_constant__ GradientParameters p) {
  const Part& part = p.parts[blockIdx.y];
  const Unit u = unit_of<kLanes>(part.rows, part.heads);
  const int32_t dim = part.view.view.dim;
  if (!u.holds(dim)) return;
  const int64_t row = row_of_view(p.list, u.row, part.keys);
  blend<T>(part.view, row, u.head, u.lane, 1, *octet_at<T>(part.packed, u, part.heads, dim),
           part.factor);
}

struct OffsetParameters {
  EntryList list;
  DeviceView q, k, v;
  int64_t batch, heads_q, heads_kv, dim_qk, dim_v;
  int64_t* tables;
  int64_t table_size;
};

__global__ void __launch_bounds__(kThreads)
    offsets_kernel(const __grid_constant__ OffsetParameters p) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index > p.batch) return;
  const bool behind = index >= p.list.count;  // an empty entry starts where the last one ends
  const DeviceEntry& e = p.list.entries[behind ? p.list.count - 1 : index];
  const auto put = [&](int table, int64_t value) {
    p.tables[table * p.table_size + index] = value;
  };
  const auto in_view = [&](const DeviceView& view, int64_t row, int64_t rows) {
    return behind ? view.offset(row + rows - 1, 0) + view.stride_seq : view.offset(row, 0);
  };
  put(kViewQ, in_view(p.q, e.q_row, e.nq));
  put(kViewK, in_view(p.k, e.k_row, e.nk));
  put(kViewV, in_view(p.v, e.k_row, e.nk));
  const int64_t q = (e.q_begin + (behind ? e.nq : 0)) * p.heads_q;
  const int64_t k = (e.k_begin + (behind ? e.nk : 0)) * p.heads_kv;
  put(kPackedStats, q);
  put(kPackedO, q * p.dim_v);
  put(kPackedQ, q * p.dim_qk);
  put(kPackedK, k * p.dim_qk);
  put(kPackedV, k * p.dim_v);
}

}  // namespace

Status write_offsets(const OffsetTables& t, Stream stream) {
  const OffsetParameters p = {.list = t.list,
                              .q = cuda::device_view(t.q),
                              .k = cuda::device_view(t.k),
                              .v = cuda::device_view(t.v),
                              .batch = t.batch,
                              .heads_q = t.heads_q,
                              .heads_kv = t.heads_kv,
                              .dim_qk = t.dim_qk,
                              .dim_v = t.dim_v,
                              .tables = t.tables,
                              .table_size = offset_table_size(t.batch)};
  offsets_kernel<<<blocks(t.batch + 1, 1), kThreads, 0, native(stream)>>>(p);
  return cuda::status(cudaGetLastError(), "launching offsets for cuDNN");
}

Status pack(const Pack& t, Stream stream) {
  const PackParameters p = {.list = t.list,
                            .from = vectorized(t.from),
                            .to = t.to,
                            .rows = t.keys ? t.list.rows_k : t.list.rows_q,
                            .heads = t.heads,
                            .keys = t.keys,
                            .flipped = t.negated ? 0x8000u : 0u};
  for_type(t.from.dtype, t.from.dim, [&]<class T, int kLanes>() {
    pack_kernel<T, kLanes><<<blocks(p.rows * p.heads, kLanes), kThreads, 0, native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the packing of rows for cuDNN");
}

Status merge(const Merge& m, Stream stream) {
  const MergeParameters p = {.list = m.list,
                             .o = vectorized(m.o),
                             .lse = cuda::device_view(m.lse),
                             .part = m.part,
                             .stats = m.stats,
                             .heads = m.o.heads};
  for_type(m.dtype, m.o.dim, [&]<class T, int kLanes>() {
    merge_kernel<T, kLanes>
        <<<blocks(m.list.rows_q * p.heads, kLanes), kThreads, 0, native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the merge of cuDNN's output");
}

Status make_backward_rows(const BackwardRows& r, Stream stream) {
  const BackwardParameters p = {.list = r.list,
                                .dout = vectorized(r.dout),
                                .lse = cuda::device_view(r.lse),
                                .delta = cuda::device_view(r.delta),
                                .packed_dout = r.packed_dout,
                                .o = r.o,
                                .stats = r.stats,
                                .heads = r.dout.heads};
  for_type(r.dout.dtype, r.dout.dim, [&]<class T, int kLanes>() {
    backward_rows_kernel<T, kLanes>
        <<<blocks(r.list.rows_q * p.heads, kLanes), kThreads, 0, native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the rows of cuDNN's backward");
}

Status add_gradients(const Gradients& g, Stream stream) {
  const auto keys = [&](const TensorView& view, void* part) {
    return Part{.view = vectorized(view),
                .packed = part,
                .rows = g.list.rows_k,
                .heads = g.heads_kv,
                .keys = true};
  };
  const Part dq = {.view = vectorized(g.dq),
                   .packed = g.part_dq,
                   .rows = g.list.rows_q,
                   .heads = g.dq.heads,
                   .factor = g.negated_dq ? -1.0f : 1.0f};
  const GradientParameters p = {.list = g.list,
                                .parts = {dq, keys(g.dk, g.part_dk), keys(g.dv, g.part_dv)}};
  const int64_t units = std::max(dq.rows * dq.heads, g.list.rows_k * g.heads_kv);
  for_type(g.dtype, std::max(g.dq.dim, g.dv.dim), [&]<class T, int kLanes>() {
    const dim3 grid(blocks(units, kLanes), 3);
    gradients_kernel<T, kLanes><<<grid, kThreads, 0, native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the sum of cuDNN's gradients");
}

}  // namespace longspan::cudnn
