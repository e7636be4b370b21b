// The extra logit of off-by-one and learnable sinks, and its gradient.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "engine/host_ops.h"

namespace longspan {
namespace {

template <class T>
T* at(const TensorView& view, int64_t row, int64_t head) {
  return static_cast<T*>(view.data) + view.offset(row, head);
}

template <class T>
double sink_of(const TensorView& sink, int64_t head) {
  return sink.data == nullptr ? 0 : static_cast<double>(*at<T>(sink, 0, head));
}

template <class T>
void enter(const TensorView& o, const TensorView& lse, double logit, int64_t row, int64_t head) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  T* const statistic = at<T>(lse, row, head);
  const double before = *statistic;
  const double top = std::max(before, logit);
  if (top == kNone) return;  // no key, and a sink that has no weight
  const double total = std::exp(before - top) + std::exp(logit - top);
  const T keep = static_cast<T>(std::exp(before - top) / total);
  T* const values = at<T>(o, row, head);
  for (int64_t i = 0; i < o.dim; ++i) values[i] *= keep;
  *statistic = static_cast<T>(top + std::log(total));
}

/// Rows in order, in float64: the sum does not depend on who computes it.
template <class T>
double gradient(const TensorView& lse, const TensorView& delta, double logit, int64_t head,
                std::span<const Fill> fills) {
  double sum = 0;
  for (const Fill& rows : fills) {
    for (int64_t row = rows.row; row < rows.row + rows.rows; ++row) {
      const double statistic = *at<T>(lse, row, head);
      if (std::isinf(statistic)) continue;
      sum += std::exp(logit - statistic) * static_cast<double>(*at<T>(delta, row, head));
    }
  }
  return sum;
}

template <class T>
void enter_all(const TensorView& o, const TensorView& lse, const TensorView& sink,
               int64_t head_begin, const Fill& rows, Workers& workers) {
  workers.for_each(rows.rows, [&](int64_t index, int) {
    for (int64_t head = 0; head < lse.heads; ++head) {
      enter<T>(o, lse, sink_of<T>(sink, head_begin + head), rows.row + index, head);
    }
  });
}

template <class T>
void gradient_all(const TensorView& lse, const TensorView& delta, const TensorView& sink,
                  const TensorView& dsink, int64_t head_begin, std::span<const Fill> rows,
                  Workers& workers) {
  workers.for_each(lse.heads, [&](int64_t head, int) {
    const double logit = sink_of<T>(sink, head_begin + head);
    T* const sum = at<T>(dsink, 0, head_begin + head);
    *sum = static_cast<T>(*sum - gradient<T>(lse, delta, logit, head, rows));
  });
}

}  // namespace

void sink_rows(const TensorView& o, const TensorView& lse, const TensorView& sink,
               int64_t head_begin, const Fill& rows, Workers& workers) {
  const auto body = lse.dtype == DType::kF64 ? enter_all<double> : enter_all<float>;
  body(o, lse, sink, head_begin, rows, workers);
}

void sink_gradient(const TensorView& lse, const TensorView& delta, const TensorView& sink,
                   const TensorView& dsink, int64_t head_begin, std::span<const Fill> rows,
                   Workers& workers) {
  const auto body = lse.dtype == DType::kF64 ? gradient_all<double> : gradient_all<float>;
  body(lse, delta, sink, dsink, head_begin, rows, workers);
}

}  // namespace longspan
