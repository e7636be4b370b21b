// Rows of float64 numbers: the loops of the reference and its access to typed views.
#pragma once

#include <cstdint>

#include "longspan/tensor.h"

namespace longspan::cpu {

struct RowLoops {
  double (*dot)(const double* a, const double* b, int64_t count);
  /// dst[i] += src[i] * factor.
  void (*add)(double* dst, const double* src, double factor, int64_t count);
};

/// Loops for this machine's vectors.
const RowLoops& row_loops();

/// dst[0..dim) = a row of any element type.
void read_row(const TensorView& view, int64_t row, int64_t head, double* dst);

/// A row of an f32 or f64 view = src[0..dim).
void write_row(const TensorView& view, int64_t row, int64_t head, const double* src);

/// A row of an f32 or f64 view += src[0..dim) * factor, rounded once.
void add_row(const TensorView& view, int64_t row, int64_t head, const double* src, double factor);

}  // namespace longspan::cpu
