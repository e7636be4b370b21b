#include "providers/cpu/terms_simd.h"

#include <algorithm>
#include <numbers>

#include "base/philox.h"
#include "providers/cpu/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "providers/cpu/terms_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "providers/cpu/simd_power.h"

HWY_BEFORE_NAMESPACE();
namespace longspan::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class V>
struct Tanh {
  V value;
  V derivative;
};

/// With e = 2^y = exp(-2 |x|): tanh |x| = (1 - e) / (1 + e), and its derivative 4 e / (1 + e)^2
/// does not cancel where tanh is close to 1. 1 - e comes from the parts of e, so that small x keep
/// all digits.
template <class D, class V>
HWY_INLINE Tanh<V> tanh_of(D d, V x) {
  using T = hn::TFromD<D>;
  using I = hwy::MakeSigned<T>;
  const hn::Rebind<I, D> di;
  constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
  constexpr int kBias = sizeof(T) == 4 ? 127 : 1023;
  // e below 2^-100 changes nothing. Max would lose a NaN.
  const V low = hn::Set(d, T{-100});
  V y = hn::Mul(hn::Abs(x), hn::Set(d, static_cast<T>(-2 * std::numbers::log2e)));
  y = hn::IfThenElse(hn::Lt(y, low), low, y);
  const V whole = hn::Round(y);
  const V f = hn::Sub(y, whole);
  const V one = hn::Set(d, T{1});
  const auto exponent = hn::Add(hn::ConvertTo(di, whole), hn::Set(di, I{kBias}));
  const V scale = hn::BitCast(d, hn::ShiftLeft<kMantissa>(exponent));
  const V above = hn::Mul(power_slope(d, f), f);                  // 2^f - 1
  const V minus = hn::MulAdd(above, scale, hn::Sub(scale, one));  // e - 1
  const V e = hn::Mul(hn::Add(above, one), scale);
  const V denominator = hn::Add(minus, hn::Set(d, T{2}));
  const V four = hn::Set(d, T{4});
  return {hn::CopySign(hn::Div(minus, denominator), x),
          hn::Div(hn::Mul(four, e), hn::Mul(denominator, denominator))};
}

/// This file is compiled without contraction of products and sums, hence the result of a pair does
/// not depend on where it stands.
template <class T>
void logits(const LogitBlock<T>& block) {
  const hn::CappedTag<T, kChunk> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, block.scale);
  const auto softcap = hn::Set(d, block.softcap);
  const auto slope = hn::Set(d, block.slope);
  for (int64_t i = 0; i < block.rows; ++i) {
    const auto place = hn::Set(d, block.slope == 0 ? T{0} : block.row_place[i]);
    for (int64_t lane = 0; lane < block.lanes; lane += step) {
      const int64_t at = i * block.ld + lane;
      auto s = hn::Mul(hn::Load(d, block.scores + at), scale);
      if (block.softcap != 0) {
        const auto tanh = tanh_of(d, s);
        s = hn::Mul(tanh.value, softcap);
        if (block.derivative != nullptr) hn::Store(tanh.derivative, d, block.derivative + at);
      }
      if (block.slope != 0) {
        const auto apart = hn::Abs(hn::Sub(hn::LoadU(d, block.lane_place + lane), place));
        s = hn::NegMulAdd(slope, apart, s);
      }
      if (block.bias != nullptr) s = hn::Add(s, hn::Load(d, block.bias + at));
      hn::Store(s, d, block.scores + at);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

template <class D, class T>
auto words(D d, const DropoutBlock<T>& block, int64_t lane, uint32_t row_token) {
  const uint32_t lane_token = block.lane_token[lane];
  const uint32_t q = block.lanes_are_queries ? lane_token : row_token;
  const uint32_t k = block.lanes_are_queries ? row_token : lane_token;
  return hn::Set(d, philox4x32({block.sequence, block.head, q, k}, block.key)[0]);
}

#else

/// The words of a counter, each in the low halves of the lanes. High halves hold anything
/// throughout: a product looks at low halves alone.
template <class V>
struct Counter {
  V sequence, head, q, k;
};

/// Word 0 of Philox4x32-10.
template <class D, class V>
HWY_INLINE V philox_word(D d, Counter<V> c, std::array<uint32_t, 2> key) {
  const hn::Repartition<uint32_t, D> d32;
  const auto multiply = [=](V value, uint32_t by) {
    return hn::MulEven(hn::BitCast(d32, value), hn::Set(d32, by));
  };
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const V first = multiply(c.sequence, kPhiloxMultiplier0);
    const V second = multiply(c.q, kPhiloxMultiplier1);
    c.sequence = hn::Xor3(hn::ShiftRight<32>(second), c.head, hn::Set(d, key[0]));
    c.q = hn::Xor3(hn::ShiftRight<32>(first), c.k, hn::Set(d, key[1]));
    c.head = second;
    c.k = first;
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return c.sequence;
}

template <class D, class V, class T>
HWY_INLINE V row_words(D d, const DropoutBlock<T>& block, V lane_tokens, uint32_t row_token) {
  const V row = hn::Set(d, row_token);
  const Counter<V> counter = {hn::Set(d, block.sequence), hn::Set(d, block.head),
                              block.lanes_are_queries ? lane_tokens : row,
                              block.lanes_are_queries ? row : lane_tokens};
  return philox_word(d, counter, block.key);
}

/// The words of the pairs from `lane` on, one for each lane of `d`, which has the size of T.
template <class D, class T>
HWY_INLINE auto words(D d, const DropoutBlock<T>& block, int64_t lane, uint32_t row_token) {
  const hn::Rebind<uint32_t, D> d32;
  const auto tokens = hn::LoadU(d32, block.lane_token + lane);
  if constexpr (sizeof(T) == 8) {
    const auto word = row_words(d, block, hn::PromoteTo(d, tokens), row_token);
    return hn::And(word, hn::Set(d, uint64_t{0xffffffff}));
  } else {
    const hn::Repartition<uint64_t, D> d64;
    const auto pairs = hn::BitCast(d64, tokens);
    const auto even = row_words(d64, block, pairs, row_token);
    const auto odd = row_words(d64, block, hn::ShiftRight<32>(pairs), row_token);
    return hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(odd)), hn::BitCast(d32, even));
  }
}

#endif

template <class T>
void dropout(const DropoutBlock<T>& block) {
  const hn::CappedTag<T, kChunk> d;
  const hn::Rebind<hwy::MakeUnsigned<T>, decltype(d)> du;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, block.factor);
  if (block.threshold == 0) {  // nothing is dropped
    for (int64_t i = 0; i < block.rows; ++i)
      std::fill_n(block.factors + i * block.ld, block.lanes, block.factor);
    return;
  }
  // The threshold itself may be 2^32.
  const auto last_dropped = hn::Set(du, static_cast<hwy::MakeUnsigned<T>>(block.threshold - 1));
  for (int64_t i = 0; i < block.rows; ++i) {
    for (int64_t lane = 0; lane < block.lanes; lane += step) {
      const auto kept = hn::Gt(words(du, block, lane, block.row_token[i]), last_dropped);
      hn::Store(hn::IfThenElseZero(hn::RebindMask(d, kept), factor), d,
                block.factors + i * block.ld + lane);
    }
  }
}

}  // namespace

const TermsSimd<float>* terms_f32() {
  static constexpr TermsSimd<float> kTable = {logits<float>, dropout<float>};
  return &kTable;
}

const TermsSimd<double>* terms_f64() {
  static constexpr TermsSimd<double> kTable = {logits<double>, dropout<double>};
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace longspan::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longspan::cpu {

HWY_EXPORT(terms_f32);
HWY_EXPORT(terms_f64);

template <>
const TermsSimd<float>& terms_simd<float>() {
  return *HWY_DYNAMIC_DISPATCH(terms_f32)();
}

template <>
const TermsSimd<double>& terms_simd<double>() {
  return *HWY_DYNAMIC_DISPATCH(terms_f64)();
}

}  // namespace longspan::cpu
#endif
