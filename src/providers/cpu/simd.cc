#include "providers/cpu/simd.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "providers/cpu/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace longspan::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Interpolants of 2^f on [-1/2, 1/2] at the Chebyshev nodes; relative errors 2.6e-9 and 5e-18.
template <class D, class V>
V power_fraction(D d, V f) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    V y = hn::Set(d, 0.00015461444698569129f);
    y = hn::MulAdd(y, f, hn::Set(d, 0.0013400428177615838f));
    y = hn::MulAdd(y, f, hn::Set(d, 0.0096180566785246373f));
    y = hn::MulAdd(y, f, hn::Set(d, 0.05550327226670302f));
    y = hn::MulAdd(y, f, hn::Set(d, 0.24022650922288757f));
    y = hn::MulAdd(y, f, hn::Set(d, 0.69314720670283259f));
    return hn::MulAdd(y, f, hn::Set(d, 1.0f));
  } else {
    constexpr double kCoefficients[] = {
        4.4558179083360645e-10, 7.0741942972885211e-09, 1.0178057087733941e-07,
        1.3215432535912375e-06, 1.5252733841556773e-05, 0.00015403530463724353,
        0.0013333558146406471,  0.0096181291075872564,  0.055504108664821625,
        0.24022650695910158,    0.69314718055994529,    1.0};
    V y = hn::Set(d, kCoefficients[0]);
    for (int i = 1; i < 12; ++i) y = hn::MulAdd(y, f, hn::Set(d, kCoefficients[i]));
    return y;
  }
}

/// 2^x: 0 below the normal range, +inf above it, NaN for NaN.
template <class D, class V>
V power_of_two(D d, V x) {
  using T = hn::TFromD<D>;
  using I = hwy::MakeSigned<T>;
  const hn::Rebind<I, D> di;
  constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
  constexpr int kBias = sizeof(T) == 4 ? 127 : 1023;
  const auto low = hn::Lt(x, hn::Set(d, static_cast<T>(1 - kBias)));
  const V top = hn::Set(d, static_cast<T>(kBias + 1));
  x = hn::IfThenElse(hn::Gt(x, top), top, x);  // Min would lose a NaN
  const V whole = hn::Round(x);
  const auto exponent = hn::Add(hn::ConvertTo(di, whole), hn::Set(di, I{kBias}));
  const V scale = hn::BitCast(d, hn::ShiftLeft<kMantissa>(exponent));
  return hn::IfThenZeroElse(low, hn::Mul(power_fraction(d, hn::Sub(x, whole)), scale));
}

/// Loads lanes of any element type as T.
template <class D>
hn::Vec<D> load_as(D d, const hn::TFromD<D>* src) {
  return hn::LoadU(d, src);
}
template <class D>
hn::Vec<D> load_as(D d, const hwy::float16_t* src) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), src));
}
template <class D>
hn::Vec<D> load_as(D d, const hwy::bfloat16_t* src) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), src));
}

template <class T, class S>
void load_row(const S* src, int64_t dim, T* dst, int64_t ld) {
  const hn::CappedTag<T, kChunk> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= dim; i += step) hn::Store(load_as(d, src + i), d, dst + i);
  if (i == dim && dim == ld) return;
  alignas(64) S rest[kChunk] = {};
  std::memcpy(static_cast<void*>(rest), src + i, static_cast<size_t>(dim - i) * sizeof(S));
  hn::Store(load_as(d, rest), d, dst + i);
  for (i += step; i < ld; i += step) hn::Store(hn::Zero(d), d, dst + i);
}

template <class T, class S>
void load_rows(const RowBlock& block, T* dst, int64_t ld) {
  const TensorView& view = block.view;
  const S* data = static_cast<const S*>(view.data);
  for (int64_t i = 0; i < block.count; ++i) {
    load_row(data + view.offset(block.row + i, block.head), view.dim, dst + i * ld, ld);
  }
  const int64_t rest = padded(block.count) - block.count;
  std::memset(dst + block.count * ld, 0, static_cast<size_t>(rest * ld) * sizeof(T));
}

void load_f64(const RowBlock& block, double* dst, int64_t ld) {
  load_rows<double, double>(block, dst, ld);
}

void load_f32(const RowBlock& block, float* dst, int64_t ld) {
  switch (block.view.dtype) {
    case DType::kF16: return load_rows<float, hwy::float16_t>(block, dst, ld);
    case DType::kBF16: return load_rows<float, hwy::bfloat16_t>(block, dst, ld);
    default: return load_rows<float, float>(block, dst, ld);
  }
}

template <class D, class T>
hn::Vec<D> column_max(D d, const T* scores, int64_t ld, int64_t keys, hn::Vec<D> start) {
  // Four chains hide the latency of the comparison; the order of a maximum is free.
  hn::Vec<D> a = start, b = start, c = start, e = start;
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) {
    a = hn::Max(a, hn::Load(d, scores + j * ld));
    b = hn::Max(b, hn::Load(d, scores + (j + 1) * ld));
    c = hn::Max(c, hn::Load(d, scores + (j + 2) * ld));
    e = hn::Max(e, hn::Load(d, scores + (j + 3) * ld));
  }
  for (; j < keys; ++j) a = hn::Max(a, hn::Load(d, scores + j * ld));
  return hn::Max(hn::Max(a, b), hn::Max(c, e));
}

template <class T>
void softmax(const SoftmaxBlock<T>& block) {
  const hn::CappedTag<T, kChunk> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  const auto log2 = hn::Set(d, block.log2);
  for (int64_t lane = 0; lane < block.lanes; lane += step) {
    T* scores = block.scores + lane;
    const auto before = hn::Load(d, block.max + lane);
    const auto max = column_max(d, scores, block.ld, block.keys, before);
    // (-inf) - (-inf) never occurs: lanes without a key so far subtract 0.
    const auto shift = hn::IfThenZeroElse(hn::Eq(max, none), max);
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < block.keys; ++j) {
      T* at = scores + j * block.ld;
      const auto p = power_of_two(d, hn::Mul(hn::Sub(hn::Load(d, at), shift), log2));
      hn::Store(p, d, at);
      sum = hn::Add(sum, p);
    }
    const auto decay = power_of_two(d, hn::Mul(hn::Sub(before, shift), log2));
    hn::Store(decay, d, block.decay + lane);
    hn::Store(max, d, block.max + lane);
    hn::Store(hn::MulAdd(hn::Load(d, block.sum + lane), decay, sum), d, block.sum + lane);
  }
}

template <class T>
void gradient(const GradientBlock<T>& block) {
  const hn::CappedTag<T, kChunk> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto log2 = hn::Set(d, block.log2);
  for (int64_t i = 0; i < block.queries; ++i) {
    const auto lse = hn::Set(d, block.lse[i]);
    const auto lse_rest = hn::Set(d, block.lse_rest[i]);
    const auto delta = hn::Set(d, block.delta[i]);
    T* scores = block.scores + i * block.ld;
    T* gradients = block.gradients + i * block.ld;
    for (int64_t lane = 0; lane < block.lanes; lane += step) {
      const auto above = hn::Sub(hn::Sub(hn::Load(d, scores + lane), lse), lse_rest);
      const auto p = power_of_two(d, hn::Mul(above, log2));
      hn::Store(p, d, scores + lane);
      const auto ds = hn::Mul(p, hn::Sub(hn::Load(d, gradients + lane), delta));
      hn::Store(ds, d, gradients + lane);
    }
  }
}

/// dP - delta is taken in float64, where it may cancel; the rest is float32.
void wide_gradient_body(const WideGradientBlock& block) {
  const hn::CappedTag<double, kChunk> wide;
  const hn::Rebind<float, decltype(wide)> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(wide));
  const auto log2 = hn::Set(d, block.log2);
  for (int64_t i = 0; i < block.queries; ++i) {
    const auto lse = hn::Set(d, block.lse[i]);
    const auto lse_rest = hn::Set(d, block.lse_rest[i]);
    const auto delta = hn::Set(wide, block.delta[i]);
    const int64_t row = i * block.ld;
    for (int64_t at = row; at < row + block.lanes; at += step) {
      const auto above = hn::Sub(hn::Sub(hn::Load(d, block.scores + at), lse), lse_rest);
      const auto p = power_of_two(d, hn::Mul(above, log2));
      const auto dp = hn::Sub(hn::Load(wide, block.gradients + at), delta);
      hn::Store(p, d, block.scores + at);
      hn::Store(hn::Mul(p, hn::DemoteTo(d, dp)), d, block.ds + at);
    }
  }
}

template <class T>
void blend(T* dst, const T* src, const T* decay, int64_t rows, int64_t ld) {
  const hn::CappedTag<T, kChunk> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i) {
    const auto factor = hn::Set(d, decay[i]);
    for (int64_t j = i * ld; j < (i + 1) * ld; j += step) {
      hn::Store(hn::MulAdd(hn::Load(d, dst + j), factor, hn::Load(d, src + j)), d, dst + j);
    }
  }
}

template <class T>
void merge(T* row, const T* src, T keep, T weight, int64_t dim) {
  const hn::CappedTag<T, kChunk> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, weight);
  const auto old = hn::Set(d, keep);
  int64_t j = 0;
  for (; j + step <= dim; j += step) {
    auto value = hn::Mul(hn::Load(d, src + j), scale);
    if (keep != 0) value = hn::MulAdd(hn::LoadU(d, row + j), old, value);
    hn::StoreU(value, d, row + j);
  }
  for (; j < dim; ++j) {
    // fma, as above: where a row ends inside a vector must not change its bits.
    row[j] = keep != 0 ? std::fma(row[j], keep, src[j] * weight) : src[j] * weight;
  }
}

}  // namespace

void wide_gradient_here(const WideGradientBlock& block) { wide_gradient_body(block); }

const Simd<float>* table_f32() {
  static constexpr Simd<float> kTable = {load_f32, softmax<float>, gradient<float>, blend<float>,
                                         merge<float>};
  return &kTable;
}

const Simd<double>* table_f64() {
  static constexpr Simd<double> kTable = {load_f64, softmax<double>, gradient<double>,
                                          blend<double>, merge<double>};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace longspan::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longspan::cpu {

HWY_EXPORT(table_f32);
HWY_EXPORT(table_f64);
HWY_EXPORT(wide_gradient_here);

void wide_gradient(const WideGradientBlock& block) {
  HWY_DYNAMIC_DISPATCH(wide_gradient_here)(block);
}

template <>
const Simd<float>& simd<float>() {
  return *HWY_DYNAMIC_DISPATCH(table_f32)();
}

template <>
const Simd<double>& simd<double>() {
  return *HWY_DYNAMIC_DISPATCH(table_f64)();
}

}  // namespace longspan::cpu
#endif
