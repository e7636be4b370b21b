// From an engine's outputs to the caller's rows.
#include "cuda/runtime.h"
#include "providers/rows/kernels.h"
#include "providers/rows/octets.cuh"

namespace longspan::rows {
namespace {

struct MergeParameters {
  EntryList list;
  Vectorized o;
  DeviceView lse;
  const void* part;
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
    if (row >= 0) {
      part = p.stats[u.row * p.heads + u.head];
      before = *p.lse.at<float>(row, u.head);
    }
  }
  __syncthreads();  // all lanes have read the LSE that one of them writes
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
  blend<float>(p.o, row, u.head, u.lane, keep, packed_octet<T>(p.part, u, p.heads, dim), weight);
}

struct Part {
  Vectorized to;
  const void* packed = nullptr;
  int64_t rows = 0, heads = 0;
  float keep = 0, factor = 1;
  bool keys = false;
};

struct DeliveryParameters {
  EntryList list;
  Part parts[3];
};

template <class T, class To, int kLanes>
__global__ void __launch_bounds__(kThreads)
    delivery_kernel(const __grid_constant__ DeliveryParameters p) {
  const Part& part = p.parts[blockIdx.y];
  const Unit u = unit_of<kLanes>(part.rows, part.heads);
  const int32_t dim = part.to.view.dim;
  if (!u.holds(dim)) return;
  const int64_t row = row_of_view(p.list, u.row, part.keys);
  if (row < 0) return;
  blend<To>(part.to, row, u.head, u.lane, part.keep,
            packed_octet<T>(part.packed, u, part.heads, dim), part.factor);
}

struct BlankView {
  DeviceView view;
  int64_t rows = 0, heads = 0;
  bool keys = false;
};

struct BlankParameters {
  EntryList list;
  BlankView views[4];
};

__global__ void __launch_bounds__(kThreads)
    blank_kernel(const __grid_constant__ BlankParameters p) {
  const BlankView& v = p.views[blockIdx.y];
  const Unit u = unit_of<32>(v.rows, v.heads);
  if (!u.inside) return;
  const int64_t row = row_of_view(p.list, u.row, v.keys);
  if (v.view.dtype == DType::kF32) {
    for (int i = u.lane; i < v.view.dim; i += 32) v.view.at<float>(row, u.head)[i] = -kInfinity;
  } else {
    for (int i = u.lane; i < v.view.dim; i += 32) v.view.at<uint16_t>(row, u.head)[i] = 0;
  }
}

}  // namespace

Status merge(const Merge& m, Stream stream) {
  const MergeParameters p = {.list = m.list,
                             .o = vectorized(m.o),
                             .lse = cuda::device_view(m.lse),
                             .part = m.part,
                             .stats = m.stats,
                             .heads = m.o.heads};
  for_type<kRowLanes>(m.dtype, m.o.dim, [&]<class T, int kLanes>() {
    merge_kernel<T, kLanes>
        <<<blocks(m.list.rows_q * p.heads, kLanes), kThreads, 0, native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the merge of partial results");
}

Status deliver(const Delivery& d, Stream stream) {
  if (d.count == 0) return {};
  DeliveryParameters p = {.list = d.list};
  int64_t units = 0;
  int64_t dim = 0;
  for (int64_t i = 0; i < d.count; ++i) {
    const Result16& r = d.results[static_cast<size_t>(i)];
    const int64_t rows = r.keys ? d.list.rows_k : d.list.rows_q;
    p.parts[i] = {.to = vectorized(r.to),
                  .packed = r.packed,
                  .rows = rows,
                  .heads = r.heads,
                  .keep = r.adds ? 1.0f : 0.0f,
                  .factor = r.factor,
                  .keys = r.keys};
    units = std::max(units, rows * r.heads);
    dim = std::max(dim, r.to.dim);
  }
  const bool wide = d.results[0].to.dtype == DType::kF32;
  for_type<kRowLanes>(d.dtype, dim, [&]<class T, int kLanes>() {
    const dim3 grid(blocks(units, kLanes), static_cast<unsigned>(d.count));
    const auto kernel = wide ? delivery_kernel<T, float, kLanes> : delivery_kernel<T, T, kLanes>;
    kernel<<<grid, kThreads, 0, native(stream)>>>(p);
  });
  return cuda::status(cudaGetLastError(), "launching the delivery of results");
}

Status blank(const Blank& b, Stream stream) {
  BlankParameters p = {.list = b.list};
  unsigned count = 0;
  int64_t units = 0;
  const auto add = [&](const TensorView& view, int64_t rows, bool keys) {
    if (view.rows() == 0 || rows == 0) return;
    p.views[count++] = {cuda::device_view(view), rows, view.heads, keys};
    units = std::max(units, rows * view.heads);
  };
  for (const TensorView& view : b.queries) add(view, b.list.rows_q, false);
  for (const TensorView& view : b.keys) add(view, b.list.rows_k, true);
  if (count == 0) return {};
  blank_kernel<<<dim3(blocks(units, 32), count), kThreads, 0, native(stream)>>>(p);
  return cuda::status(cudaGetLastError(), "launching rows without keys or queries");
}

}  // namespace longspan::rows
