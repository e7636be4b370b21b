#include "providers/cpu/simd.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "providers/cpu/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "providers/cpu/simd_power.h"

HWY_BEFORE_NAMESPACE();
namespace longspan::cpu {
namespace HWY_NAMESPACE {
namespace {

/// Loads lanes of any element type as T.
template <class D>
hn::Vec<D> load_as(D d, const hn::TFromD<D>* src) {
  return hn::LoadU(d, src);
}
#if HWY_TARGET == HWY_SCALAR || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)
/// Without an instruction for it Highway's conversion turns infinities into numbers.
template <class D>
hn::Vec<D> load_as(D d, const hwy::float16_t* src) {
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(src)));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffu));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  // Exact for subnormals too: the product is a multiple of 2^-24.
  const auto number = hn::BitCast(d32, hn::Mul(hn::BitCast(d, shifted), hn::Set(d, 0x1p112F)));
  const auto special = hn::Or(shifted, hn::Set(d32, 0x7f800000u));
  const auto value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d32, 0x7bffu)), special, number);
  return hn::BitCast(d, hn::Or(value, hn::ShiftLeft<16>(hn::Xor(bits, magnitude))));
}
#else
template <class D>
hn::Vec<D> load_as(D d, const hwy::float16_t* src) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), src));
}
#endif
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

/// The same for elements that lie `apart`.
template <class T, class S>
void gather_row(const S* src, int64_t apart, int64_t dim, T* dst, int64_t ld) {
  const hn::CappedTag<T, kChunk> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < ld; i += step) {
    alignas(64) S some[kChunk] = {};
    for (int64_t j = i; j < std::min(i + step, dim); ++j) {
      std::memcpy(static_cast<void*>(some + (j - i)), src + j * apart, sizeof(S));
    }
    hn::Store(load_as(d, some), d, dst + i);
  }
}

template <class T, class S>
void load_rows(const RowBlock& block, T* dst, int64_t ld) {
  const TensorView& view = block.view;
  const S* data = static_cast<const S*>(view.data);
  for (int64_t i = 0; i < block.count; ++i) {
    const S* row = data + view.offset(block.row + i, block.head);
    if (block.step == 1) {
      load_row(row, view.dim, dst + i * ld, ld);
    } else {
      gather_row(row, block.step, view.dim, dst + i * ld, ld);
    }
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

template <class D, class DS>
hn::Vec<D> narrow(D d, hn::Vec<DS> v) {
  if constexpr (std::is_same_v<D, DS>) {
    return v;
  } else {
    return hn::DemoteTo(d, v);
  }
}

template <class DS, class D>
hn::Vec<DS> widen(DS wide, hn::Vec<D> v) {
  if constexpr (std::is_same_v<D, DS>) {
    return v;
  } else {
    return hn::PromoteTo(wide, v);
  }
}

/// dP - delta is taken in S, where it may cancel; the rest is T.
template <bool kDropout, class T, class S>
void gradient_rows(const GradientBlock<T, S>& block) {
  const hn::CappedTag<S, kChunk> wide;
  const hn::Rebind<T, decltype(wide)> d;
  using DS = decltype(hn::CappedTag<S, kChunk>());
  using D = hn::Rebind<T, DS>;
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
      auto dp = hn::Load(wide, block.gradients + at);
      auto kept = p;
      if constexpr (kDropout) {
        const auto factor = hn::Load(d, block.dropout + at);
        dp = hn::Mul(dp, widen<DS, D>(wide, factor));
        kept = hn::Mul(p, factor);
      }
      hn::Store(kept, d, block.scores + at);
      hn::Store(hn::Mul(p, narrow<D, DS>(d, hn::Sub(dp, delta))), d, block.ds + at);
    }
  }
}

template <class T, class S>
void gradient(const GradientBlock<T, S>& block) {
  if (block.dropout == nullptr) return gradient_rows<false>(block);
  gradient_rows<true>(block);
}

template <class T>
void multiply(const FactorBlock<T>& block) {
  const hn::CappedTag<T, kChunk> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t row = i * block.ld;
    for (int64_t at = row; at < row + block.lanes; at += step) {
      const auto value = hn::Load(d, block.values + at);
      const auto factor = hn::Load(d, block.factors + at);
      const auto zero = hn::Or(hn::Eq(value, hn::Zero(d)), hn::Eq(factor, hn::Zero(d)));
      hn::Store(hn::IfThenZeroElse(zero, hn::Mul(value, factor)), d, block.values + at);
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

const Simd<float>* table_f32() {
  static constexpr Simd<float> kTable = {load_f32,
                                         softmax<float>,
                                         gradient<float, float>,
                                         gradient<float, double>,
                                         multiply<float>,
                                         blend<float>,
                                         merge<float>};
  return &kTable;
}

const Simd<double>* table_f64() {
  static constexpr Simd<double> kTable = {load_f64,
                                          softmax<double>,
                                          gradient<double, double>,
                                          gradient<double, double>,
                                          multiply<double>,
                                          blend<double>,
                                          merge<double>};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace longspan::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longspan::cpu {

HWY_EXPORT(table_f32);
HWY_EXPORT(table_f64);

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
