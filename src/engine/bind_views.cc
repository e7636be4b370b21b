// Checks of single tensors: type, shape, strides, alignment, page table; and of what comes with
// them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "engine/bind.h"

namespace longspan::bind {
namespace {

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

Status check_rows(const Named& t) {
  const TensorView& v = *t.view;
  if (v.rows() != t.shard->rows || v.heads != t.heads || v.dim != t.dim) {
    return invalid(
        fmt::format("{} is [{} x {}, {}, {}] (batch x seq, heads, dim); this rank's rows "
                    "are {}, heads {}, dim {}",
                    t.name, v.batch, v.seq, v.heads, v.dim, t.shard->rows, t.heads, t.dim));
  }
  if (v.rows() == 0 || v.batch == 1 || v.batch == t.shard->batch) return {};
  return invalid(
      fmt::format("{} has batch {}; this rank's shard has batch {} (or 1: all rows in "
                  "one)",
                  t.name, v.batch, t.shard->batch));
}

/// Rows of a shard in pages, the last of which may be partial.
Status check_pages(const Named& t, int64_t page, bool on_host) {
  const TensorView& v = *t.view;
  const int64_t pages = (t.shard->rows + page - 1) / page;
  if (v.batch != pages || v.seq != page || v.heads != t.heads || v.dim != t.dim) {
    return invalid(fmt::format(
        "{} is [{}, {}, {}, {}] (table entries, page, heads, dim); this "
        "rank's {} rows need [{}, {}, {}, {}]",
        t.name, v.batch, v.seq, v.heads, v.dim, t.shard->rows, pages, page, t.heads, t.dim));
  }
  if (pages == 0) return {};
  if (v.pages == nullptr) {
    return invalid(fmt::format("{} has no page table; the problem has page={}", t.name, page));
  }
  for (int64_t i = 0; on_host && i < pages; ++i) {
    if (v.pages[i] >= 0 && v.pages[i] < v.page_count) continue;
    return invalid(fmt::format("{}: entry {} of the page table is {}; the pool has {} pages",
                               t.name, i, v.pages[i], v.page_count));
  }
  return {};
}

Status check_whole(const Named& t) {
  const TensorView& v = *t.view;
  if (v.batch == t.batch && v.seq == t.seq && v.heads == t.heads && v.dim == t.dim) return {};
  return invalid(
      fmt::format("{} is [{}, {}, {}, {}] (batch, seq, heads, dim); the problem needs "
                  "[{}, {}, {}, {}]",
                  t.name, v.batch, v.seq, v.heads, v.dim, t.batch, t.seq, t.heads, t.dim));
}

Status check_shape(const Named& t, int64_t page, bool on_host) {
  if (t.paged) return check_pages(t, page, on_host);
  if (t.view->pages != nullptr) {
    return invalid(fmt::format("{} has a page table, {}", t.name,
                               page == 0 ? "the problem has no page=N" : "only k and v may"));
  }
  return t.shard == nullptr ? check_whole(t) : check_rows(t);
}

/// One entry per sequence where the problem has device_lengths.
Status check_lengths(const Problem& p, const ActualLengths& lengths) {
  const size_t needed = p.device_lengths ? p.lengths.sequences.size() : 0;
  for (const auto& [name, given] :
       {std::pair{"lengths_q", lengths.q}, std::pair{"lengths_k", lengths.k}}) {
    if (given.size() == needed && (needed == 0 || given.data() != nullptr)) continue;
    return invalid(
        fmt::format("{} has {} entries; the problem has device_lengths={}, which needs "
                    "{}, one per sequence",
                    name, given.size(), p.device_lengths, needed));
  }
  return {};
}

}  // namespace

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "bind"};
}

Status check_view(const Named& t, int64_t page, bool on_host) {
  const TensorView& v = *t.view;
  if (v.dtype != t.dtype) {
    return invalid(fmt::format("{} is {}; must be {}", t.name, name(v.dtype), name(t.dtype)));
  }
  LONGSPAN_CHECK_OK(check_shape(t, page, on_host));
  if (v.rows() == 0) return {};
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

Status present(std::string_view name, const TensorView& view, bool wanted, std::string_view key) {
  const bool given = view.data != nullptr;
  if (given == wanted) return {};
  if (given) {
    return invalid(
        fmt::format("{} is given but the problem does not ask for it; leave it out or "
                    "add {} to the problem",
                    name, key));
  }
  return invalid(fmt::format("{} is missing; the problem has {}", name, key));
}

Status check_sides(const Problem& p, const SideOperands& side, bool on_host) {
  LONGSPAN_CHECK_OK(check_lengths(p, side.lengths));
  LONGSPAN_CHECK_OK(present("sink", side.sink, p.sink == Sink::kLearnable, "sink=learnable"));
  LONGSPAN_CHECK_OK(present("bias", side.bias, p.bias != Bias::kNone, "bias"));
  if (side.slopes.data != nullptr && p.alibi == Alibi::kNone) {
    return invalid(
        "alibi_slopes are given but the problem has alibi=none; leave them out or add "
        "alibi=default");
  }
  if (side.softcap) {
    const double cap = *side.softcap;
    if (!std::isfinite(cap) || cap < 0 || (cap != 0) != (p.softcap != 0)) {
      return invalid(
          fmt::format("softcap {}: must be positive where the problem has a softcap and "
                      "0 where it has none (it has {})",
                      cap, p.softcap));
    }
  }
  if (!side.dropout) return {};
  if (on_host && side.dropout->device_key != nullptr) {
    return invalid(
        "dropout has a device_key, but the engine computes on a cpu: give seed and offset");
  }
  const double probability = side.dropout->probability;
  if (!(probability >= 0 && probability < 1)) {
    return invalid(fmt::format("dropout probability {}: must be in [0, 1)", probability));
  }
  if (probability == 0 || p.dropout != 0) return {};
  return invalid(
      fmt::format("dropout probability {}: the problem was prepared without dropout; add "
                  "dropout=P to it",
                  probability));
}

}  // namespace longspan::bind
