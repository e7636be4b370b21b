// Elements of tensors as doubles: widening is exact, narrowing rounds once, to nearest even.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "longspan/tensor.h"

namespace longspan::tool {

/// Rounds to `mantissa` explicit bits with the smallest normal exponent `min_exponent`. Exact in
/// double as long as the target's range lies inside double's.
inline double round_to(double value, int mantissa, int min_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, mantissa - exponent)), exponent - mantissa);
}

inline uint16_t f16_bits(double value) {
  if (std::isnan(value)) return 0x7e00;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = round_to(std::abs(value), 10, -14);
  if (magnitude >= 65536) return sign | 0x7c00;
  if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(std::ldexp(magnitude, 24));
  const int exponent = std::ilogb(magnitude);
  const auto fraction = static_cast<uint16_t>(std::ldexp(magnitude, 10 - exponent));
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | (fraction & 0x3ff));
}

inline uint16_t bf16_bits(double value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto narrowed = static_cast<float>(round_to(value, 7, -126));  // exact, or overflows to inf
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(narrowed) >> 16);
}

inline double f16_value(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

inline double bf16_value(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Element `index` of memory that holds `dtype`.
inline double load(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF64: return static_cast<const double*>(data)[index];
    case DType::kF32: return static_cast<const float*>(data)[index];
    case DType::kF16: return f16_value(static_cast<const uint16_t*>(data)[index]);
    case DType::kBF16: return bf16_value(static_cast<const uint16_t*>(data)[index]);
  }
  return 0;
}

inline void store(void* data, DType dtype, int64_t index, double value) {
  switch (dtype) {
    case DType::kF64: static_cast<double*>(data)[index] = value; return;
    case DType::kF32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case DType::kF16: static_cast<uint16_t*>(data)[index] = f16_bits(value); return;
    case DType::kBF16: static_cast<uint16_t*>(data)[index] = bf16_bits(value); return;
  }
}

inline double load(const TensorView& view, int64_t row, int64_t head, int64_t column) {
  return load(view.data, view.dtype, view.offset(row, head) + column);
}

inline void store(const TensorView& view, int64_t row, int64_t head, int64_t column, double value) {
  store(view.data, view.dtype, view.offset(row, head) + column, value);
}

}  // namespace longspan::tool
