// XLA's arrays as views. Arrays are contiguous, last dimension fastest.
#pragma once

#include "longspan/dropout.h"
#include "longspan/problem.h"
#include "longspan/provider.h"
#include "where.h"

namespace longspan::xla {

/// Arguments and results of one execution, by place. The Python side keeps to the same order.
class Arrays {
 public:
  Arrays(ffi::RemainingArgs arguments, ffi::RemainingRets results)
      : arguments_(arguments), results_(results) {}

  /// invalid_argument when the program has fewer of them.
  Status expect(size_t arguments, size_t results) const;
  size_t arguments() const { return arguments_.size(); }
  size_t results() const { return results_.size(); }
  ffi::AnyBuffer argument(size_t place) const;
  ffi::AnyBuffer result(size_t place) const;

 private:
  ffi::RemainingArgs arguments_;
  ffi::RemainingRets results_;
};

/// [batch, seq, heads, dim], [seq, batch, heads, dim] or [tokens, heads, dim] by layout.
Result<TensorView> rows_view(const ffi::AnyBuffer& array, Layout layout);
/// The same without dim.
Result<TensorView> statistics_view(const ffi::AnyBuffer& array, Layout layout);
/// [heads]; absent where the array is empty.
Result<TensorView> per_head_view(const ffi::AnyBuffer& array);
/// [batch or 1, heads or 1, sq or 1, skv]; absent where the array is empty.
Result<TensorView> bias_view(const ffi::AnyBuffer& array);
/// The part of a byte array that is aligned as workspaces are.
Workspace workspace_of(const ffi::AnyBuffer& bytes);
/// Dropout of the problem with a seed of two words, low one first; the array is empty without
/// dropout.
Result<Dropout> dropout_of(const Problem& problem, const ffi::AnyBuffer& words, const Where& where);

}  // namespace longspan::xla
