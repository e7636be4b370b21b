// How far results are from float64 attention, and how far they may be.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/tensor.h"

namespace longspan::tool {

/// Figures of one tensor. Not finite where the result or the reference is not.
struct Measure {
  double relative_rms = 0;     // rms(error) / rms(reference), see measure()
  double max_abs = 0;          // largest |error|
  double max_rel = 0;          // LSE: largest |error| / max(1, |lse|); else / max(rms, |reference|)
  double rounding = 0;         // relative_rms of the reference rounded to the result's type
  int64_t nan_count = 0;       // NaN in the result
  int64_t first_nan = -1;      // (row * heads + head) * dim + column of the first
  int64_t inf_mismatches = 0;  // LSE: -inf on one side only
};

double rms(const TensorView& view);

/// `floor`: what stands for rms(reference) where that is below 1e-6 times it: 1 for o, rms(dout)
/// for gradients. Views have equal shapes, whatever their strides and types.
Measure measure(const TensorView& result, const TensorView& reference, double floor);
/// -inf positions are counted where only one side has them, and left out of the figures.
Measure measure_lse(const TensorView& result, const TensorView& reference);

/// What the results of a dtype may deviate.
struct Bars {
  double relative_rms = 0;  // o, dq, dk, dv
  double lse = 0;           // max_rel of the LSE
  std::string reason;       // not empty when wider than usual
};

/// `largest_lse`: the largest finite |LSE|. Logits beyond 1e3 have a bar of one FP32 ulp of the
/// logit; the LSE stands for them, since keys whose logit lies far below it have no weight.
Bars bars(DType dtype, double largest_lse, bool gpu = false);

double largest_finite(const TensorView& view);

/// Elements of rows that hold no token that differ from `expected` (0, or -inf for the LSE).
int64_t padding_faults(const TensorView& view, const std::vector<bool>& tokens, double expected);

/// One thing that was verified.
struct Check {
  std::string name;  // "o", "padding rows", ...
  double value = 0;  // passes when value <= bar; NaN never does
  double bar = 0;
  std::string detail;  // what the value is

  bool pass() const { return value <= bar; }
};

}  // namespace longspan::tool
