// The elementwise half of the tiled provider, compiled for several instruction sets.
#pragma once

#include <cstdint>

#include "longspan/tensor.h"

namespace longspan::cpu {

/// Rows [row, row + count) of one head of a view, every step-th element of each.
struct RowBlock {
  const TensorView& view;
  int64_t row = 0;
  int64_t count = 0;
  int64_t head = 0;
  int64_t step = 1;
};

/// Scores [keys][ld] with one query per lane. `lanes` is a multiple of kChunk.
template <class T>
struct SoftmaxBlock {
  T* scores = nullptr;  // in: in score units; out: probabilities before division by sum
  int64_t ld = 0;
  int64_t lanes = 0;
  int64_t keys = 0;
  T* max = nullptr;    // per lane, carried from block to block
  T* sum = nullptr;    // per lane, carried
  T* decay = nullptr;  // out, per lane: what earlier results are to be multiplied with
  T log2 = 1;          // ScoreUnits::log2
};

/// Scores [queries][ld] with one key per lane. S is the type of dP and delta: T, or float64 to keep
/// what is left where they cancel.
template <class T, class S>
struct GradientBlock {
  T* scores = nullptr;           // in: in score units; out: probabilities P after dropout
  const S* gradients = nullptr;  // dP; may be ds where S is T
  T* ds = nullptr;               // out: P (dP - delta)
  const T* dropout = nullptr;    // factors of P and dP; null: none
  int64_t ld = 0;                // of all four
  int64_t lanes = 0;
  int64_t queries = 0;
  const T* lse = nullptr;       // per query, in score units
  const T* lse_rest = nullptr;  // what rounding to T took from it
  const S* delta = nullptr;     // per query
  T log2 = 1;                   // ScoreUnits::log2
};

/// A block of T to be multiplied with factors. Zeros on either side give 0, whatever the other.
template <class T>
struct FactorBlock {
  T* values = nullptr;
  const T* factors = nullptr;
  int64_t ld = 0;
  int64_t lanes = 0;
  int64_t rows = 0;
};

template <class T>
struct Simd {
  /// dst[i][0..ld) = row i as T, zeros beyond dim; zeros in rows [count, padded(count)).
  void (*load)(const RowBlock& rows, T* dst, int64_t ld);
  void (*softmax)(const SoftmaxBlock<T>& block);
  void (*gradient)(const GradientBlock<T, T>& block);
  void (*wide_gradient)(const GradientBlock<T, double>& block);
  void (*multiply)(const FactorBlock<T>& block);
  /// dst[i][j] = dst[i][j] * decay[i] + src[i][j].
  void (*blend)(T* dst, const T* src, const T* decay, int64_t rows, int64_t ld);
  /// row[j] = row[j] * keep + src[j] * weight; keep == 0 does not read row.
  void (*merge)(T* row, const T* src, T keep, T weight, int64_t dim);
};

/// The best table for this machine. T is float or double.
template <class T>
const Simd<T>& simd();

}  // namespace longspan::cpu
