// The checks before anything moves: shapes, alignment, workspace, overlap.
#include "engine/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "engine/call.h"
#include "engine/executor.h"

namespace longspan {
namespace {

using bind::Bytes;
using bind::check_overlap;
using bind::check_sides;
using bind::check_view;
using bind::invalid;
using bind::Named;
using bind::overlap;
using bind::Placed;
using bind::present;

/// Of one direction, those of sides included.
constexpr size_t kMostTensors = 16;

Bytes bytes_of(const TensorView& v) {
  const auto begin = reinterpret_cast<uintptr_t>(v.data);
  return {begin, begin + static_cast<uintptr_t>(v.extent_bytes())};
}

Bytes bytes_of(const Workspace& workspace) {
  const auto begin = reinterpret_cast<uintptr_t>(workspace.data);
  return {begin, begin + workspace.bytes};
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

Status check_saved_range(std::string_view name, Bytes range, std::span<const Placed> tensors,
                         Bytes workspace) {
  if (overlap(range, workspace)) {
    return invalid(fmt::format("saved buffer {} overlaps the workspace", name));
  }
  for (const Placed& t : tensors) {
    if (overlap(range, t.bytes)) {
      return invalid(fmt::format("saved buffer {} overlaps {}", name, t.name));
    }
  }
  return {};
}

/// Of a layout, which lists aliases first.
size_t own_saved(const std::vector<BufferSpec>& specs) {
  return static_cast<size_t>(std::count_if(
      specs.begin(), specs.end(), [](const BufferSpec& spec) { return spec.alias.empty(); }));
}

Bytes range_of(const BufferSpec& spec, const void* data) {
  const int64_t bytes = spec.shape[0] * spec.shape[1] * spec.shape[2] * size_of(spec.dtype);
  const auto at = reinterpret_cast<uintptr_t>(data);
  return {at, at + static_cast<uintptr_t>(bytes)};
}

/// Saved buffers must be there, and apart from each other, the workspace and all tensors.
Status check_saved(const PreparedCall& call, const Saved& saved, std::span<const Placed> tensors,
                   Bytes workspace) {
  const std::vector<BufferSpec>& specs = call.saved_layout();
  const size_t aliases = specs.size() - own_saved(specs);
  for (size_t i = aliases; i < specs.size(); ++i) {
    const BufferSpec& spec = specs[i];
    const size_t index = i - aliases;
    if (index >= saved.size()) {
      return invalid(fmt::format("{} saved buffers are given; {} is missing (see saved_layout)",
                                 saved.size(), spec.name));
    }
    const Bytes range = range_of(spec, saved[index]);
    if (range.begin == range.end) continue;
    if (range.begin == 0) return invalid(fmt::format("saved buffer {} has no data", spec.name));
    if (range.begin % kWorkspaceAlignment != 0) {
      return invalid(fmt::format("saved buffer {} is not aligned to {} bytes", spec.name,
                                 kWorkspaceAlignment));
    }
    LONGSPAN_CHECK_OK(check_saved_range(spec.name, range, tensors, workspace));
    for (size_t other = 0; other < index; ++other) {
      if (overlap(range, range_of(specs[aliases + other], saved[other]))) {
        return invalid(
            fmt::format("saved buffer {} overlaps saved buffer number {}", spec.name, other));
      }
    }
  }
  return {};
}

Status check_all(const PreparedCall& call, Direction direction, std::span<const Named> tensors,
                 const Saved& saved, Workspace workspace) {
  std::array<Placed, kMostTensors> all;
  size_t count = 0;
  for (const Named& tensor : tensors) {
    LONGSPAN_CHECK_OK(check_view(tensor, call.problem().page, call.on_host()));
    const Bytes bytes = bytes_of(*tensor.view);
    if (bytes.begin == bytes.end) continue;
    all[count++] = {tensor.name, tensor.view, bytes, tensor.output};
  }
  LONGSPAN_CHECK_OK(check_workspace(call, direction, workspace));
  const std::span<const Placed> placed(all.data(), count);
  LONGSPAN_CHECK_OK(check_overlap(placed, bytes_of(workspace)));
  return check_saved(call, saved, placed, bytes_of(workspace));
}

/// Named tensors of a call. No allocation.
class Tensors {
 public:
  explicit Tensors(const PreparedCall& call)
      : p_(call.problem()),
        q_(call.partition().q(call.rank())),
        k_(call.partition().k(call.rank())) {}

  void query(std::string_view name, const TensorView& view, int64_t dim, bool output = false) {
    add({.name = name,
         .view = &view,
         .output = output,
         .shard = &q_,
         .heads = p_.heads_q,
         .dim = dim,
         .dtype = p_.dtype});
  }
  void key(std::string_view name, const TensorView& view, int64_t dim, bool output = false) {
    add({.name = name,
         .view = &view,
         .output = output,
         .shard = &k_,
         .heads = p_.heads_kv,
         .dim = dim,
         .dtype = p_.dtype,
         .paged = p_.page != 0});
  }
  void statistics(const TensorView& view, bool output) {
    add({.name = "lse",
         .view = &view,
         .output = output,
         .shard = &q_,
         .heads = p_.heads_q,
         .dim = 1,
         .dtype = accumulator(p_.dtype)});
  }
  /// One value per query head.
  void per_head(std::string_view name, const TensorView& view, bool output) {
    if (view.data == nullptr) return;
    add({.name = name,
         .view = &view,
         .output = output,
         .batch = 1,
         .seq = 1,
         .heads = p_.heads_q,
         .dim = 1,
         .dtype = accumulator(p_.dtype)});
  }
  void bias(std::string_view name, const TensorView& view, DType dtype, bool output) {
    if (view.data == nullptr) return;
    const std::array<int64_t, 4> shape = p_.bias_shape();
    add({.name = name,
         .view = &view,
         .output = output,
         .batch = shape[0],
         .seq = shape[2],
         .heads = shape[1],
         .dim = shape[3],
         .dtype = dtype});
  }
  std::span<const Named> all() const { return {tensors_.data(), count_}; }

 private:
  void add(const Named& tensor) { tensors_[count_++] = tensor; }

  const Problem& p_;
  const Shard& q_;
  const Shard& k_;
  std::array<Named, kMostTensors> tensors_;
  size_t count_ = 0;
};

void add_sides(Tensors& tensors, const Problem& p, const SideOperands& side) {
  tensors.per_head("sink", side.sink, false);
  tensors.per_head("alibi_slopes", side.slopes, false);
  tensors.bias("bias", side.bias, p.dtype, false);
}

}  // namespace

Status check_binding(const Call& call, const ForwardOperands& x, const Saved& saved,
                     Workspace workspace) {
  const auto& prepared = static_cast<const PreparedCall&>(call);
  const Problem& p = call.problem();
  LONGSPAN_CHECK_OK(check_sides(p, x.side, prepared.on_host()));
  LONGSPAN_CHECK_OK(present("max_logit", x.max_logit, p.max_logit, "max_logit=true"));
  Tensors tensors(prepared);
  tensors.query("q", x.q, p.dim_qk);
  tensors.key("k", x.k, p.dim_qk);
  tensors.key("v", x.v, p.dim_v);
  tensors.query("o", x.o, p.dim_v, true);
  tensors.statistics(x.lse, true);
  add_sides(tensors, p, x.side);
  tensors.per_head("max_logit", x.max_logit, true);
  return check_all(prepared, Direction::kForward, tensors.all(), saved, workspace);
}

Status check_binding(const Call& call, const BackwardOperands& x, const Saved& saved,
                     Workspace workspace) {
  const auto& prepared = static_cast<const PreparedCall&>(call);
  const Problem& p = call.problem();
  if (call.explanation().forward_only) {
    return invalid(
        "the call was prepared for forward alone (backward strategy \"none\"); prepare "
        "it with a backward strategy");
  }
  LONGSPAN_CHECK_OK(check_sides(p, x.side, prepared.on_host()));
  LONGSPAN_CHECK_OK(present("dsink", x.dsink, p.sink == Sink::kLearnable, "sink=learnable"));
  LONGSPAN_CHECK_OK(present("dbias", x.dbias, p.bias != Bias::kNone, "bias"));
  Tensors tensors(prepared);
  tensors.query("q", x.q, p.dim_qk);
  tensors.key("k", x.k, p.dim_qk);
  tensors.key("v", x.v, p.dim_v);
  tensors.query("o", x.o, p.dim_v);
  tensors.statistics(x.lse, false);
  tensors.query("dout", x.dout, p.dim_v);
  tensors.query("dq", x.dq, p.dim_qk, true);
  tensors.key("dk", x.dk, p.dim_qk, true);
  tensors.key("dv", x.dv, p.dim_v, true);
  add_sides(tensors, p, x.side);
  tensors.per_head("dsink", x.dsink, true);
  tensors.bias("dbias", x.dbias, accumulator(p.dtype), true);
  return check_all(prepared, Direction::kBackward, tensors.all(), saved, workspace);
}

}  // namespace longspan
