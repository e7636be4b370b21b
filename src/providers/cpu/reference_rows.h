// Rows of float64 numbers: the loops of the reference and its access to typed views.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "longspan/tensor.h"

namespace longspan::cpu {

struct RowLoops {
  double (*dot)(const double* a, const double* b, int64_t count);
  /// dst[i] += src[i] * factor.
  void (*add)(double* dst, const double* src, double factor, int64_t count);
};

/// Loops for this machine's vectors.
const RowLoops& row_loops();

/// Element `at` of a view of any type, counted from its first.
inline double element(const TensorView& view, int64_t at) {
  switch (view.dtype) {
    case DType::kF64: return static_cast<const double*>(view.data)[at];
    case DType::kF32: return static_cast<const float*>(view.data)[at];
    case DType::kF16: return f16_to_float(static_cast<const uint16_t*>(view.data)[at]);
    case DType::kBF16: return bf16_to_float(static_cast<const uint16_t*>(view.data)[at]);
  }
  return 0;
}

/// Element `at` of an f32 or f64 view += value, rounded once.
inline void add_element(const TensorView& view, int64_t at, double value) {
  if (view.dtype == DType::kF64) static_cast<double*>(view.data)[at] += value;
  if (view.dtype != DType::kF32) return;
  float& target = static_cast<float*>(view.data)[at];
  target = static_cast<float>(target + value);
}

/// dst[0..dim) = a row of any element type.
void read_row(const TensorView& view, int64_t row, int64_t head, double* dst);

/// A row of an f32 or f64 view = src[0..dim).
void write_row(const TensorView& view, int64_t row, int64_t head, const double* src);

/// A row of an f32 or f64 view += src[0..dim) * factor, rounded once.
void add_row(const TensorView& view, int64_t row, int64_t head, const double* src, double factor);

}  // namespace longspan::cpu
