#include "providers/cpu/reference_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/reference_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace longspan::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;

double dot(const double* a, const double* b, int64_t count) {
  const D d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, a + i + step), hn::LoadU(d, b + i + step), s1);
    s2 = hn::MulAdd(hn::LoadU(d, a + i + 2 * step), hn::LoadU(d, b + i + 2 * step), s2);
    s3 = hn::MulAdd(hn::LoadU(d, a + i + 3 * step), hn::LoadU(d, b + i + 3 * step), s3);
  }
  for (; i + step <= count; i += step) {
    s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add(double* dst, const double* src, double factor, int64_t count) {
  const D d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, src + i), scale, hn::LoadU(d, dst + i)), d, dst + i);
  }
  for (; i < count; ++i) dst[i] += src[i] * factor;
}

}  // namespace

const RowLoops* loops() {
  static constexpr RowLoops kLoops = {dot, add};
  return &kLoops;
}

}  // namespace HWY_NAMESPACE
}  // namespace longspan::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longspan::cpu {
namespace {

template <class T>
T* row_of(const TensorView& view, int64_t row, int64_t head) {
  return static_cast<T*>(view.data) + view.offset(row, head);
}

}  // namespace

HWY_EXPORT(loops);

const RowLoops& row_loops() { return *HWY_DYNAMIC_DISPATCH(loops)(); }

void read_row(const TensorView& view, int64_t row, int64_t head, double* dst) {
  const int64_t first = view.offset(row, head);
  for (int64_t i = 0; i < view.dim; ++i) dst[i] = element(view, first + i);
}

void write_row(const TensorView& view, int64_t row, int64_t head, const double* src) {
  for (int64_t i = 0; i < view.dim; ++i) {
    if (view.dtype == DType::kF64) row_of<double>(view, row, head)[i] = src[i];
    if (view.dtype == DType::kF32) row_of<float>(view, row, head)[i] = static_cast<float>(src[i]);
  }
}

void add_row(const TensorView& view, int64_t row, int64_t head, const double* src, double factor) {
  const int64_t first = view.offset(row, head);
  for (int64_t i = 0; i < view.dim; ++i) add_element(view, first + i, src[i] * factor);
}

}  // namespace longspan::cpu
#endif
