#include "measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "numbers.h"

namespace longspan::tool {
namespace {

template <class Body>
void for_each_element(const TensorView& view, Body&& body) {
  for (int64_t row = 0; row < view.rows(); ++row) {
    for (int64_t head = 0; head < view.heads; ++head) {
      for (int64_t column = 0; column < view.dim; ++column) body(row, head, column);
    }
  }
}

int64_t element_count(const TensorView& view) { return view.rows() * view.heads * view.dim; }

/// std::max drops NaN on one side; a NaN must stay.
double larger(double a, double b) { return std::isnan(b) || b > a ? b : a; }

void count_nan(Measure& measure, double value, int64_t index) {
  if (!std::isnan(value)) return;
  if (measure.nan_count++ == 0) measure.first_nan = index;
}

double root_mean(double sum, int64_t count) {
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

double ratio(double error, double scale) {
  if (scale > 0) return error / scale;
  return error == 0 ? 0 : std::numeric_limits<double>::infinity();
}

double rounded(double value, DType dtype) {
  double storage = 0;
  store(&storage, dtype, 0, value);
  return load(&storage, dtype, 0);
}

}  // namespace

double rms(const TensorView& view) {
  double sum = 0;
  for_each_element(view, [&](int64_t row, int64_t head, int64_t column) {
    const double value = load(view, row, head, column);
    sum += value * value;
  });
  return root_mean(sum, element_count(view));
}

Measure measure(const TensorView& result, const TensorView& reference, double floor) {
  Measure measure;
  const double reference_rms = rms(reference);
  const double scale = reference_rms < 1e-6 * floor ? floor : reference_rms;
  double sum = 0;
  double rounding_sum = 0;
  int64_t index = 0;
  for_each_element(result, [&](int64_t row, int64_t head, int64_t column) {
    const double value = load(result, row, head, column);
    const double expected = load(reference, row, head, column);
    count_nan(measure, value, index++);
    const double error = std::abs(value - expected);
    sum += error * error;
    const double rounding = rounded(expected, result.dtype) - expected;
    rounding_sum += rounding * rounding;
    measure.max_abs = larger(measure.max_abs, error);
    measure.max_rel = larger(measure.max_rel, ratio(error, larger(scale, std::abs(expected))));
  });
  measure.relative_rms = ratio(root_mean(sum, index), scale);
  measure.rounding = ratio(root_mean(rounding_sum, index), scale);
  return measure;
}

Measure measure_lse(const TensorView& result, const TensorView& reference) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  Measure measure;
  double error_sum = 0;
  double reference_sum = 0;
  int64_t finite = 0;
  int64_t index = 0;
  for_each_element(result, [&](int64_t row, int64_t head, int64_t column) {
    const double value = load(result, row, head, column);
    const double expected = load(reference, row, head, column);
    count_nan(measure, value, index++);
    if ((value == kNone) != (expected == kNone)) ++measure.inf_mismatches;
    if (value == kNone || expected == kNone) return;
    const double error = std::abs(value - expected);
    error_sum += error * error;
    reference_sum += expected * expected;
    ++finite;
    measure.max_abs = larger(measure.max_abs, error);
    measure.max_rel = larger(measure.max_rel, error / std::max(1.0, std::abs(expected)));
  });
  measure.relative_rms = ratio(root_mean(error_sum, finite), root_mean(reference_sum, finite));
  return measure;
}

double largest_finite(const TensorView& view) {
  double largest = 0;
  for_each_element(view, [&](int64_t row, int64_t head, int64_t column) {
    const double value = std::abs(load(view, row, head, column));
    if (std::isfinite(value)) largest = std::max(largest, value);
  });
  return largest;
}

Bars bars(DType dtype, double largest_lse, bool gpu) {
  const auto all = [](double bar, double lse) {
    return Bars{.relative_rms = bar, .lse = lse, .reason = {}};
  };
  Bars result;
  switch (dtype) {
    case DType::kF64: return all(1e-12, 1e-12);
    case DType::kF32: result = all(2e-6, gpu ? 1e-4 : 1e-5); break;
    case DType::kF16: result = gpu ? all(6e-4, 1e-4) : all(3e-4, 1e-5); break;
    case DType::kBF16: result = gpu ? all(4e-3, 1e-4) : all(2.5e-3, 1e-5); break;
  }
  if (largest_lse <= 1e3) return result;
  const double ulp = std::ldexp(1.0, std::ilogb(largest_lse) - 23);
  if (ulp <= result.relative_rms) return result;
  result = all(ulp, result.lse);
  result.reason =
      fmt::format("logits reach {:.3g}: bar is one FP32 ulp of that, {:.2e}", largest_lse, ulp);
  return result;
}

int64_t padding_faults(const TensorView& view, const std::vector<bool>& tokens, double expected) {
  int64_t faults = 0;
  for_each_element(view, [&](int64_t row, int64_t head, int64_t column) {
    if (tokens[static_cast<size_t>(row)]) return;
    if (load(view, row, head, column) != expected) ++faults;  // NaN differs too
  });
  return faults;
}

}  // namespace longspan::tool
