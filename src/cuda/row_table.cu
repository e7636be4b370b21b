#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cuda/row_units.cuh"

namespace longspan::cuda {
namespace {

constexpr int kMostBlocks = 1056;      // 8 for each of 132 multiprocessors
constexpr int64_t kPieceBytes = 2048;  // four 16-byte accesses of every lane of a warp

/// The number of `view` among `used`, added where it is new; -1 when there is no place.
int32_t number_of(std::vector<int32_t>& used, int32_t view) {
  const auto known = std::find(used.begin(), used.end(), view);
  if (known != used.end()) return static_cast<int32_t>(known - used.begin());
  if (used.size() == kMostViews) return -1;
  used.push_back(view);
  return static_cast<int32_t>(used.size()) - 1;
}

/// Heads of a row that lie one behind the other in all views, up to about kPieceBytes; else 1.
int32_t span_of(RowOp op, const RowParameters& p, size_t views) {
  if (op == RowOp::kSink) return 1;
  int64_t widest = 1;
  for (size_t i = 0; i < views; ++i) {
    const DeviceView& view = p.views[i];
    if (op != RowOp::kDelta && view.stride_head != view.dim) return 1;
    widest = std::max<int64_t>(widest, view.dim * size_of(view.dtype));
  }
  return static_cast<int32_t>(std::max<int64_t>(1, kPieceBytes / widest));
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
    launch.rows = first.back();
    table.rows_ += launch.rows;
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
    first.push_back(first.back() + item.rows);
    launch.heads = std::max(launch.heads, item.heads);
  }
  LONGSPAN_CHECK_OK(close());
  return Result<RowTable>(std::move(table));
}

RowParameters RowTable::parameters(RowOp op, const Launch& launch,
                                   std::span<const TensorView> views, const TensorView& third,
                                   int64_t head_begin) {
  RowParameters p{};
  for (size_t i = 0; i < launch.views.size(); ++i) {
    p.views[i] = device_view(views[static_cast<size_t>(launch.views[i])]);
  }
  p.third = device_view(third);
  p.items = static_cast<const RowItem*>(launch.items.data());
  p.first = static_cast<const int64_t*>(launch.first.data());
  p.rows = launch.rows;
  p.count = launch.count;
  p.head_begin = head_begin;
  p.span = std::min(launch.heads, span_of(op, p, launch.views.size()));
  return p;
}

Status RowTable::run(RowOp op, std::span<const TensorView> views, const TensorView& third,
                     int64_t head_begin, Stream stream, const int32_t* lengths) const {
  auto* const native = static_cast<cudaStream_t>(stream.handle);
  for (const Launch& launch : launches_) {
    RowParameters p = parameters(op, launch, views, third, head_begin);
    p.lengths = lengths;
    const int64_t wanted = (p.rows + kRowWarps - 1) / kRowWarps;
    const dim3 blocks(static_cast<unsigned>(std::min<int64_t>(wanted, kMostBlocks)),
                      static_cast<unsigned>((launch.heads + p.span - 1) / p.span));
    switch (op) {
      case RowOp::kCopy:
      case RowOp::kWiden:
      case RowOp::kZero:
      case RowOp::kLowest: launch_moves(op, p, blocks, native); break;
      case RowOp::kAdd:
      case RowOp::kMax:
      case RowOp::kDelta: launch_sums(op, p, blocks, native); break;
      case RowOp::kSink: launch_sinks(p, blocks, native); break;
    }
    LONGSPAN_CHECK_OK(status(cudaGetLastError(), "launching a row operation"));
  }
  return {};
}

Status RowTable::sink_gradient(std::span<const TensorView> views, const TensorView& sink,
                               const TensorView& dsink, int64_t head_begin, Stream stream) const {
  for (const Launch& launch : launches_) {
    const RowParameters p = parameters(RowOp::kSink, launch, views, sink, head_begin);
    launch_sink_gradient(p, launch.heads, device_view(dsink),
                         static_cast<cudaStream_t>(stream.handle));
    LONGSPAN_CHECK_OK(status(cudaGetLastError(), "launching the sink's gradient"));
  }
  return {};
}

Status clear(const TensorView& view, Stream stream) {
  return status(cudaMemsetAsync(view.data, 0, static_cast<size_t>(view.extent_bytes()),
                                static_cast<cudaStream_t>(stream.handle)),
                "clearing a gradient");
}

}  // namespace longspan::cuda
