// Powers of two of vectors, for the files that are compiled once per instruction set: they include
// this after hwy/highway.h.
#if defined(LONGSPAN_CPU_SIMD_POWER_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGSPAN_CPU_SIMD_POWER_H
#undef LONGSPAN_CPU_SIMD_POWER_H
#else
#define LONGSPAN_CPU_SIMD_POWER_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace longspan::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// (2^f - 1) / f: interpolants of 2^f on [-1/2, 1/2] at the Chebyshev nodes, whose relative errors
/// are 2.6e-9 and 5e-18.
template <class D, class V>
HWY_INLINE V power_slope(D d, V f) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    V y = hn::Set(d, 0.00015461444698569129f);
    y = hn::MulAdd(y, f, hn::Set(d, 0.0013400428177615838f));
    y = hn::MulAdd(y, f, hn::Set(d, 0.0096180566785246373f));
    y = hn::MulAdd(y, f, hn::Set(d, 0.05550327226670302f));
    y = hn::MulAdd(y, f, hn::Set(d, 0.24022650922288757f));
    return hn::MulAdd(y, f, hn::Set(d, 0.69314720670283259f));
  } else {
    constexpr double kCoefficients[] = {
        4.4558179083360645e-10, 7.0741942972885211e-09, 1.0178057087733941e-07,
        1.3215432535912375e-06, 1.5252733841556773e-05, 0.00015403530463724353,
        0.0013333558146406471,  0.0096181291075872564,  0.055504108664821625,
        0.24022650695910158,    0.69314718055994529};
    V y = hn::Set(d, kCoefficients[0]);
    for (int i = 1; i < 11; ++i) y = hn::MulAdd(y, f, hn::Set(d, kCoefficients[i]));
    return y;
  }
}

/// 2^x: 0 below the normal range, +inf above it, NaN for NaN.
template <class D, class V>
HWY_INLINE V power_of_two(D d, V x) {
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
  const V f = hn::Sub(x, whole);
  const V power = hn::MulAdd(power_slope(d, f), f, hn::Set(d, T{1}));
  return hn::IfThenZeroElse(low, hn::Mul(power, scale));
}

}  // namespace HWY_NAMESPACE
}  // namespace longspan::cpu
HWY_AFTER_NAMESPACE();

#endif
