// The checks before anything moves: shapes, alignment, workspace, overlap.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "engine/call.h"
#include "engine/executor.h"

namespace longspan {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "bind"};
}

struct Named {
  std::string_view name;
  const TensorView* view;
  bool output;
  const Shard* shard;
  int64_t heads;
  int64_t dim;
  DType dtype;
};

/// True unless each dimension steps over all that the dimensions of smaller strides reach.
bool shares_elements(const TensorView& v) {
  std::array<std::pair<int64_t, int64_t>, 3> dimensions = {
      {{v.stride_batch, v.batch}, {v.stride_seq, v.seq}, {v.stride_head, v.heads}}};
  std::sort(dimensions.begin(), dimensions.end());
  int64_t reach = v.dim;
  for (const auto& [stride, count] : dimensions) {
    if (count <= 1) continue;
    if (stride < reach) return true;
    reach += (count - 1) * stride;
  }
  return false;
}

Status check_view(const Named& t) {
  const TensorView& v = *t.view;
  if (v.dtype != t.dtype) {
    return invalid(fmt::format("{} is {}; must be {}", t.name, name(v.dtype), name(t.dtype)));
  }
  if (v.rows() != t.shard->rows || v.heads != t.heads || v.dim != t.dim) {
    return invalid(
        fmt::format("{} is [{} x {}, {}, {}] (batch x seq, heads, dim); this rank's rows "
                    "are {}, heads {}, dim {}",
                    t.name, v.batch, v.seq, v.heads, v.dim, t.shard->rows, t.heads, t.dim));
  }
  if (v.rows() == 0) return {};
  if (v.batch != 1 && v.batch != t.shard->batch) {
    return invalid(
        fmt::format("{} has batch {}; this rank's shard has batch {} (or 1: all rows in "
                    "one)",
                    t.name, v.batch, t.shard->batch));
  }
  if (v.data == nullptr) return invalid(fmt::format("{} has no data", t.name));
  if ((v.heads > 1 && v.stride_head < v.dim) || v.stride_seq < 0 || v.stride_batch < 0) {
    return invalid(
        fmt::format("{} has strides {}, {}, {}; dim must be contiguous, the head stride "
                    "at least {} and no stride negative",
                    t.name, v.stride_batch, v.stride_seq, v.stride_head, v.dim));
  }
  if (t.output && shares_elements(v)) {
    return invalid(fmt::format(
        "{} has strides {}, {}, {} for [{}, {}, {}, {}]; rows and heads of "
        "an output must not share memory",
        t.name, v.stride_batch, v.stride_seq, v.stride_head, v.batch, v.seq, v.heads, v.dim));
  }
  if (reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(size_of(v.dtype)) != 0) {
    return invalid(
        fmt::format("{} is not aligned to its elements of {} bytes", t.name, size_of(v.dtype)));
  }
  return {};
}

struct Bytes {
  uintptr_t begin;
  uintptr_t end;
};

Bytes bytes_of(const TensorView& v) {
  const auto begin = reinterpret_cast<uintptr_t>(v.data);
  return {begin, begin + static_cast<uintptr_t>(v.extent_bytes())};
}

bool overlap(Bytes a, Bytes b) { return a.begin < b.end && b.begin < a.end; }

/// The largest step that all rows of both tensors are multiples of, in bytes; heads count as rows
/// where `heads` says so. 0 for two single rows.
int64_t common_step(const TensorView& a, const TensorView& b, bool heads) {
  int64_t step = 0;
  for (const TensorView* v : {&a, &b}) {
    const int64_t size = size_of(v->dtype);
    if (v->batch > 1) step = std::gcd(step, v->stride_batch * size);
    if (v->seq > 1) step = std::gcd(step, v->stride_seq * size);
    if (heads && v->heads > 1) step = std::gcd(step, v->stride_head * size);
  }
  return step;
}

/// Tensors that interleave in one allocation (packed QKV) overlap as ranges but share no element:
/// the rows, or the heads, of one lie in the gaps that the other's leave.
bool interleaved(const TensorView& a, const TensorView& b) {
  const int64_t distance =
      static_cast<int64_t>(reinterpret_cast<intptr_t>(b.data) - reinterpret_cast<intptr_t>(a.data));
  for (const bool heads : {false, true}) {
    const int64_t step = common_step(a, b, heads);
    if (step == 0) continue;
    const auto width = [&](const TensorView& v) {
      return ((heads ? 0 : (v.heads - 1) * v.stride_head) + v.dim) * size_of(v.dtype);
    };
    const int64_t phase = ((distance % step) + step) % step;
    if (phase >= width(a) && phase + width(b) <= step) return true;
  }
  return false;
}

Status check_overlap(std::span<const Named> tensors, Workspace workspace) {
  const auto begin = reinterpret_cast<uintptr_t>(workspace.data);
  const Bytes scratch{begin, begin + workspace.bytes};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Named& a = tensors[i];
    if (a.view->extent_bytes() == 0) continue;
    if (overlap(bytes_of(*a.view), scratch)) {
      return invalid(fmt::format("{} overlaps the workspace", a.name));
    }
    for (size_t j = 0; j < i; ++j) {
      const Named& b = tensors[j];
      if (!a.output && !b.output) continue;
      if (b.view->extent_bytes() == 0 || !overlap(bytes_of(*a.view), bytes_of(*b.view))) continue;
      if (interleaved(*a.view, *b.view)) continue;
      return invalid(fmt::format("{} and {} overlap in memory; outputs need memory of their own",
                                 b.name, a.name));
    }
  }
  return {};
}

Status check_workspace(const PreparedCall& call, Direction direction, Workspace workspace) {
  const size_t needed = call.workspace_bytes(direction);
  if (workspace.bytes < needed) {
    return invalid(fmt::format("workspace has {} bytes; {} needs {}", workspace.bytes,
                               name(direction), needed));
  }
  if (needed == 0) return {};
  if (workspace.data == nullptr) return invalid("workspace has no data");
  if (reinterpret_cast<uintptr_t>(workspace.data) % kWorkspaceAlignment != 0) {
    return invalid(fmt::format("workspace is not aligned to {} bytes", kWorkspaceAlignment));
  }
  return {};
}

Status check_saved_range(std::string_view name, Bytes range, std::span<const Named> tensors,
                         Workspace workspace) {
  const auto begin = reinterpret_cast<uintptr_t>(workspace.data);
  if (overlap(range, {begin, begin + workspace.bytes})) {
    return invalid(fmt::format("saved buffer {} overlaps the workspace", name));
  }
  for (const Named& t : tensors) {
    if (t.view->extent_bytes() > 0 && overlap(range, bytes_of(*t.view))) {
      return invalid(fmt::format("saved buffer {} overlaps {}", name, t.name));
    }
  }
  return {};
}

/// Saved buffers must be there, and apart from each other, the workspace and all tensors.
Status check_saved(const PreparedCall& call, const Saved& saved, std::span<const Named> tensors,
                   Workspace workspace) {
  std::array<Bytes, kQuantities> ranges;
  size_t index = 0;
  for (const BufferSpec& spec : call.saved_layout()) {
    if (!spec.alias.empty()) continue;
    if (index >= saved.size()) {
      return invalid(fmt::format("{} saved buffers are given; {} is missing (see saved_layout)",
                                 saved.size(), spec.name));
    }
    const int64_t bytes = spec.shape[0] * spec.shape[1] * spec.shape[2] * size_of(spec.dtype);
    const auto at = reinterpret_cast<uintptr_t>(saved[index]);
    const Bytes range{at, at + static_cast<uintptr_t>(bytes)};
    ranges[index++] = range;
    if (bytes == 0) continue;
    if (at == 0) return invalid(fmt::format("saved buffer {} has no data", spec.name));
    if (at % kWorkspaceAlignment != 0) {
      return invalid(fmt::format("saved buffer {} is not aligned to {} bytes", spec.name,
                                 kWorkspaceAlignment));
    }
    LONGSPAN_CHECK_OK(check_saved_range(spec.name, range, tensors, workspace));
    for (size_t other = 0; other + 1 < index; ++other) {
      if (overlap(range, ranges[other])) {
        return invalid(
            fmt::format("saved buffer {} overlaps saved buffer number {}", spec.name, other));
      }
    }
  }
  return {};
}

Status check_all(const PreparedCall& call, Direction direction, std::span<const Named> tensors,
                 const Saved& saved, Workspace workspace) {
  for (const Named& tensor : tensors) LONGSPAN_CHECK_OK(check_view(tensor));
  LONGSPAN_CHECK_OK(check_workspace(call, direction, workspace));
  LONGSPAN_CHECK_OK(check_overlap(tensors, workspace));
  return check_saved(call, saved, tensors, workspace);
}

/// Named tensors of a call by quantity.
class Tensors {
 public:
  explicit Tensors(const PreparedCall& call)
      : p_(call.problem()),
        q_(call.partition().q(call.rank())),
        k_(call.partition().k(call.rank())) {}

  Named query(std::string_view name, const TensorView& view, int64_t dim,
              bool output = false) const {
    return {name, &view, output, &q_, p_.heads_q, dim, p_.dtype};
  }
  Named key(std::string_view name, const TensorView& view, int64_t dim, bool output = false) const {
    return {name, &view, output, &k_, p_.heads_kv, dim, p_.dtype};
  }
  Named statistics(const TensorView& view, bool output) const {
    return {"lse", &view, output, &q_, p_.heads_q, 1, accumulator(p_.dtype)};
  }

 private:
  const Problem& p_;
  const Shard& q_;
  const Shard& k_;
};

}  // namespace

Status check_binding(const Call& call, const ForwardOperands& x, const Saved& saved,
                     Workspace workspace) {
  const auto& prepared = static_cast<const PreparedCall&>(call);
  const Problem& p = call.problem();
  const Tensors t(prepared);
  const std::array tensors = {t.query("q", x.q, p.dim_qk), t.key("k", x.k, p.dim_qk),
                              t.key("v", x.v, p.dim_v), t.query("o", x.o, p.dim_v, true),
                              t.statistics(x.lse, true)};
  return check_all(prepared, Direction::kForward, tensors, saved, workspace);
}

Status check_binding(const Call& call, const BackwardOperands& x, const Saved& saved,
                     Workspace workspace) {
  const auto& prepared = static_cast<const PreparedCall&>(call);
  const Problem& p = call.problem();
  const Tensors t(prepared);
  const std::array tensors = {t.query("q", x.q, p.dim_qk),
                              t.key("k", x.k, p.dim_qk),
                              t.key("v", x.v, p.dim_v),
                              t.query("o", x.o, p.dim_v),
                              t.statistics(x.lse, false),
                              t.query("dout", x.dout, p.dim_v),
                              t.query("dq", x.dq, p.dim_qk, true),
                              t.key("dk", x.dk, p.dim_qk, true),
                              t.key("dv", x.dv, p.dim_v, true)};
  return check_all(prepared, Direction::kBackward, tensors, saved, workspace);
}

}  // namespace longspan
