#include <fmt/format.h>

#include <cstdint>
#include <numeric>

#include "engine/bind.h"

namespace longspan::bind {
namespace {

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

}  // namespace

Status check_overlap(std::span<const Placed> tensors, Bytes workspace) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Placed& a = tensors[i];
    if (overlap(a.bytes, workspace)) {
      return invalid(fmt::format("{} overlaps the workspace", a.name));
    }
    for (size_t j = 0; j < i; ++j) {
      const Placed& b = tensors[j];
      if (!a.output && !b.output) continue;
      if (!overlap(a.bytes, b.bytes) || interleaved(*a.view, *b.view)) continue;
      return invalid(fmt::format("{} and {} overlap in memory; outputs need memory of their own",
                                 b.name, a.name));
    }
  }
  return {};
}

}  // namespace longspan::bind
