#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "cuda/device_view.cuh"
#include "cuda/row_ops.h"

namespace longspan::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMostViews = 48;     // of one launch: kernel parameters hold 4 KiB
constexpr int kMostBlocks = 2112;  // 16 for each of 132 multiprocessors

struct Parameters {
  DeviceView views[kMostViews];
  DeviceView third;
  const RowItem* items;
  const int64_t* first;
  int64_t units;
  int64_t head_begin;
  int32_t count;
  RowOp op;
};

/// A row of one head of an item.
struct Unit {
  const RowItem& item;
  int64_t src_row, dst_row;
  int64_t src_head, dst_head;
};

__device__ Unit unit_of(const Parameters& p, int64_t index) {
  int32_t low = 0;
  int32_t high = p.count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (p.first[middle] <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const RowItem& item = p.items[low];
  const int64_t place = index - p.first[low];
  const int64_t row = place / item.heads;
  const int64_t head = place - row * item.heads;
  return {item, item.src_row + row * item.src_step, item.dst_row + row * item.dst_step,
          item.src_head + head, item.dst_head + head};
}

__device__ bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// `bytes` bytes by the lanes of a warp, 16 at a time where both sides allow it.
__device__ void copy_bytes(const char* src, char* dst, int32_t bytes, int lane) {
  if (bytes % 16 == 0 && aligned(src) && aligned(dst)) {
    for (int32_t i = lane * 16; i < bytes; i += kWarp * 16) {
      *reinterpret_cast<uint4*>(dst + i) = *reinterpret_cast<const uint4*>(src + i);
    }
    return;
  }
  for (int32_t i = lane * 2; i < bytes; i += kWarp * 2) {  // no type is smaller
    *reinterpret_cast<uint16_t*>(dst + i) = *reinterpret_cast<const uint16_t*>(src + i);
  }
}

__device__ int32_t size(DType dtype) {
  return dtype == DType::kF64 ? 8 : dtype == DType::kF32 ? 4 : 2;
}

__device__ void copy_row(const DeviceView& src, const DeviceView& dst, const Unit& u, int lane) {
  const int64_t from = src.offset(u.src_row, u.src_head);
  const int64_t to = dst.offset(u.dst_row, u.dst_head);
  if (src.dtype == dst.dtype) {
    const int32_t bytes = size(src.dtype);
    copy_bytes(src.data + from * bytes, dst.data + to * bytes, dst.dim * bytes, lane);
    return;
  }
  const float* const values = reinterpret_cast<const float*>(src.data) + from;
  for (int32_t i = lane; i < dst.dim; i += kWarp) {
    if (dst.dtype == DType::kF16) {
      reinterpret_cast<__half*>(dst.data)[to + i] = __float2half_rn(values[i]);
    } else {
      reinterpret_cast<__nv_bfloat16*>(dst.data)[to + i] = __float2bfloat16_rn(values[i]);
    }
  }
}

template <class T>
__device__ void combine_row(const DeviceView& src, const DeviceView& dst, const Unit& u, bool adds,
                            int lane) {
  const T* const from = src.at<T>(u.src_row, u.src_head);
  T* const to = dst.at<T>(u.dst_row, u.dst_head);
  for (int32_t i = lane; i < dst.dim; i += kWarp) {
    to[i] = adds ? to[i] + from[i] : (from[i] > to[i] ? from[i] : to[i]);
  }
}

__device__ void fill_row(const DeviceView& dst, const Unit& u, bool lowest, int lane) {
  if (lowest) {
    for (int32_t i = lane; i < dst.dim; i += kWarp) {
      dst.store(u.dst_row, u.dst_head, i, -INFINITY);
    }
    return;
  }
  const int32_t bytes = size(dst.dtype);
  char* const to = dst.data + dst.offset(u.dst_row, u.dst_head) * bytes;
  for (int32_t i = lane * 2; i < dst.dim * bytes; i += kWarp * 2) {
    *reinterpret_cast<uint16_t*>(to + i) = 0;
  }
}

/// The sum over the lanes of a warp, the same on every one.
__device__ double sum_of_warp(double value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, step);
  }
  return value;
}

__device__ void delta_row(const Parameters& p, const DeviceView& o, const DeviceView& delta,
                          const Unit& u, int lane) {
  double sum = 0;
  for (int32_t i = lane; i < o.dim; i += kWarp) {
    sum += o.load(u.src_row, u.src_head, i) * p.third.load(u.src_row, u.src_head, i);
  }
  sum = sum_of_warp(sum);
  if (lane == 0) delta.store(u.dst_row, u.dst_head, 0, sum);
}

__device__ double sink_of(const DeviceView& sink, int64_t head) {
  return sink.data == nullptr ? 0 : sink.load(0, head, 0);
}

template <class T>
__device__ void sink_row(const Parameters& p, const DeviceView& o, const DeviceView& lse,
                         const Unit& u, int lane) {
  const double logit = sink_of(p.third, p.head_begin + u.src_head);
  const double before = lse.load(u.dst_row, u.dst_head, 0);
  const double top = before > logit ? before : logit;
  if (top == -INFINITY) return;
  const double total = exp(before - top) + exp(logit - top);
  const T keep = static_cast<T>(exp(before - top) / total);
  T* const values = o.at<T>(u.src_row, u.src_head);
  for (int32_t i = lane; i < o.dim; i += kWarp) values[i] *= keep;
  __syncwarp();
  if (lane == 0) lse.store(u.dst_row, u.dst_head, 0, top + log(total));
}

__global__ void __launch_bounds__(kThreads) rows_kernel(const __grid_constant__ Parameters p) {
  const int lane = threadIdx.x % kWarp;
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; i < p.units; i += step) {
    const Unit u = unit_of(p, i);
    const DeviceView& src = p.views[u.item.src];
    const DeviceView& dst = p.views[u.item.dst];
    const bool wide = dst.dtype == DType::kF64;
    switch (p.op) {
      case RowOp::kCopy: copy_row(src, dst, u, lane); break;
      case RowOp::kAdd:
      case RowOp::kMax:
        wide ? combine_row<double>(src, dst, u, p.op == RowOp::kAdd, lane)
             : combine_row<float>(src, dst, u, p.op == RowOp::kAdd, lane);
        break;
      case RowOp::kZero: fill_row(dst, u, false, lane); break;
      case RowOp::kLowest: fill_row(dst, u, true, lane); break;
      case RowOp::kDelta: delta_row(p, src, dst, u, lane); break;
      case RowOp::kSink:
        wide ? sink_row<double>(p, src, dst, u, lane) : sink_row<float>(p, src, dst, u, lane);
        break;
    }
  }
}

/// One block a head: threads take rows in turn, then add up in a fixed tree.
__global__ void __launch_bounds__(kThreads)
    sink_gradient_kernel(const __grid_constant__ Parameters p, DeviceView dsink) {
  __shared__ double sums[kThreads];
  const DeviceView& lse = p.views[0];
  const DeviceView& delta = p.views[1];
  const int64_t heads = p.items[0].heads;
  const double logit = sink_of(p.third, p.head_begin + blockIdx.x);
  double sum = 0;
  for (int64_t row = threadIdx.x; row < p.units / heads; row += kThreads) {
    const Unit u = unit_of(p, row * heads);
    const double statistic = lse.load(u.src_row, blockIdx.x, 0);
    if (!isinf(statistic)) sum += exp(logit - statistic) * delta.load(u.dst_row, blockIdx.x, 0);
  }
  sums[threadIdx.x] = sum;
  for (int step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
  if (threadIdx.x != 0) return;
  const int64_t head = p.head_begin + blockIdx.x;
  dsink.store(0, head, 0, dsink.load(0, head, 0) - sums[0]);
}

int blocks_for(int64_t units) {
  return static_cast<int>(std::min<int64_t>((units + kWarps - 1) / kWarps, kMostBlocks));
}

/// The number of `view` among `used`, added where it is new; -1 when there is no place.
int32_t number_of(std::vector<int32_t>& used, int32_t view) {
  const auto known = std::find(used.begin(), used.end(), view);
  if (known != used.end()) return static_cast<int32_t>(known - used.begin());
  if (used.size() == kMostViews) return -1;
  used.push_back(view);
  return static_cast<int32_t>(used.size()) - 1;
}

}  // namespace

Result<RowTable> RowTable::make(std::span<const RowItem> items, bool in_order) {
  RowTable table;
  std::vector<RowItem> part;
  std::vector<int64_t> first = {0};
  std::map<int32_t, int64_t> reached;  // of each dst: rows below are taken in this launch
  Launch launch;
  const auto close = [&]() -> Status {
    if (part.empty()) return {};
    LONGSPAN_TRY(launch.items, Memory::copy_of(part.data(), part.size() * sizeof(RowItem)));
    LONGSPAN_TRY(launch.first, Memory::copy_of(first.data(), first.size() * sizeof(int64_t)));
    launch.count = static_cast<int32_t>(part.size());
    launch.units = first.back();
    table.units_ += launch.units;
    table.launches_.push_back(std::move(launch));
    launch = Launch();
    part.clear();
    first = {0};
    reached.clear();
    return {};
  };
  for (RowItem item : items) {
    if (item.rows == 0 || item.heads == 0) continue;
    if (in_order && item.dst_row < reached[item.dst]) LONGSPAN_CHECK_OK(close());
    int64_t& end = reached[item.dst];
    end = std::max(end, item.dst_row + (item.rows - 1) * item.dst_step + 1);
    std::vector<int32_t> used = launch.views;
    int32_t src = number_of(used, item.src);
    int32_t dst = number_of(used, item.dst);
    if (src < 0 || dst < 0) {
      const int64_t mine = end;
      LONGSPAN_CHECK_OK(close());
      reached[item.dst] = mine;
      used.clear();
      src = number_of(used, item.src);
      dst = number_of(used, item.dst);
    }
    launch.views = std::move(used);
    item.src = src;
    item.dst = dst;
    part.push_back(item);
    first.push_back(first.back() + item.rows * item.heads);
  }
  LONGSPAN_CHECK_OK(close());
  return Result<RowTable>(std::move(table));
}

namespace {

Parameters parameters(RowOp op, const std::vector<int32_t>& numbers,
                      std::span<const TensorView> views, const TensorView& third) {
  Parameters p{};
  for (size_t i = 0; i < numbers.size(); ++i) {
    p.views[i] = device_view(views[static_cast<size_t>(numbers[i])]);
  }
  p.third = device_view(third);
  p.op = op;
  return p;
}

}  // namespace

Status RowTable::run(RowOp op, std::span<const TensorView> views, const TensorView& third,
                     int64_t head_begin, Stream stream) const {
  for (const Launch& launch : launches_) {
    Parameters p = parameters(op, launch.views, views, third);
    p.items = static_cast<const RowItem*>(launch.items.data());
    p.first = static_cast<const int64_t*>(launch.first.data());
    p.units = launch.units;
    p.count = launch.count;
    p.head_begin = head_begin;
    rows_kernel<<<blocks_for(launch.units), kThreads, 0,
                  static_cast<cudaStream_t>(stream.handle)>>>(p);
    LONGSPAN_CHECK_OK(status(cudaGetLastError(), "launching a row operation"));
  }
  return {};
}

Status RowTable::sink_gradient(std::span<const TensorView> views, const TensorView& sink,
                               const TensorView& dsink, int64_t head_begin, Stream stream) const {
  for (const Launch& launch : launches_) {
    Parameters p = parameters(RowOp::kSink, launch.views, views, sink);
    p.items = static_cast<const RowItem*>(launch.items.data());
    p.first = static_cast<const int64_t*>(launch.first.data());
    p.units = launch.units;
    p.count = launch.count;
    p.head_begin = head_begin;
    const TensorView& lse = views[static_cast<size_t>(launch.views[0])];
    sink_gradient_kernel<<<static_cast<unsigned>(lse.heads), kThreads, 0,
                           static_cast<cudaStream_t>(stream.handle)>>>(p, device_view(dsink));
    LONGSPAN_CHECK_OK(status(cudaGetLastError(), "launching the sink's gradient"));
  }
  return {};
}

Status clear(const TensorView& view, Stream stream) {
  if (view.data == nullptr) return {};
  return status(cudaMemsetAsync(view.data, 0, static_cast<size_t>(view.extent_bytes()),
                                static_cast<cudaStream_t>(stream.handle)),
                "clearing a gradient");
}

}  // namespace longspan::cuda
