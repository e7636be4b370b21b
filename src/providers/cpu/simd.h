// The elementwise half of the tiled provider, compiled for several instruction sets.
#pragma once

#include <cstdint>

#include "longspan/tensor.h"

namespace longspan::cpu {

/// Rows [row, row + count) of one head of a view.
struct RowBlock {
  const TensorView& view;
  int64_t row = 0;
  int64_t count = 0;
  int64_t head = 0;
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

/// Scores [queries][ld] with one key per lane.
template <class T>
struct GradientBlock {
  T* scores = nullptr;     // in: in score units; out: probabilities P
  T* gradients = nullptr;  // in: dP; out: P (dP - delta)
  int64_t ld = 0;
  int64_t lanes = 0;
  int64_t queries = 0;
  const T* lse = nullptr;       // per query, in score units
  const T* lse_rest = nullptr;  // what rounding to T took from it
  const T* delta = nullptr;     // per query
  T log2 = 1;                   // ScoreUnits::log2
};

/// The same with dP and delta in float64.
struct WideGradientBlock {
  float* scores = nullptr;            // in: in score units; out: probabilities P
  const double* gradients = nullptr;  // dP
  float* ds = nullptr;                // out: P (dP - delta)
  int64_t ld = 0;                     // of all three
  int64_t lanes = 0;
  int64_t queries = 0;
  const float* lse = nullptr;  // as above
  const float* lse_rest = nullptr;
  const double* delta = nullptr;
  float log2 = 1;
};

template <class T>
struct Simd {
  /// dst[i][0..ld) = row i as T, zeros beyond dim; zeros in rows [count, padded(count)).
  void (*load)(const RowBlock& rows, T* dst, int64_t ld);
  void (*softmax)(const SoftmaxBlock<T>& block);
  void (*gradient)(const GradientBlock<T>& block);
  /// dst[i][j] = dst[i][j] * decay[i] + src[i][j].
  void (*blend)(T* dst, const T* src, const T* decay, int64_t rows, int64_t ld);
  /// row[j] = row[j] * keep + src[j] * weight; keep == 0 does not read row.
  void (*merge)(T* row, const T* src, T keep, T weight, int64_t dim);
};

/// The best table for this machine. T is float or double.
template <class T>
const Simd<T>& simd();

void wide_gradient(const WideGradientBlock& block);

}  // namespace longspan::cpu
