// Row operations of the schedule on host memory. Results do not depend on the number of threads.
#pragma once

#include <span>

#include "base/workers.h"
#include "longspan/schedule.h"
#include "longspan/tensor.h"

namespace longspan {

/// Pack and unpack: equal types, accumulator type to the problem's type (rounded to nearest even),
/// or back.
void copy_rows(const TensorView& src, const TensorView& dst, const Copy& copy, Workers& workers);

/// dst += src, both accumulator type.
void add_rows(const TensorView& src, const TensorView& dst, const Copy& copy, Workers& workers);

/// delta = rowsum(dout * o), summed in float64, for rows src_row.. of o and dout. o is in
/// accumulator type.
void delta_rows(const TensorView& o, const TensorView& dout, const TensorView& delta,
                const Copy& rows, Workers& workers);

/// dst = max(dst, src), both accumulator type.
void max_rows(const TensorView& src, const TensorView& dst, const Copy& copy, Workers& workers);

/// One more logit in the denominator of each row: O *= exp(lse - lse'), lse' = log(exp(lse) +
/// exp(sink)). Head h of o and lse is head `head_begin` + h of `sink`, whose absence is a logit of
/// 0. `rows`: of o and lse.
void sink_rows(const TensorView& o, const TensorView& lse, const TensorView& sink,
               int64_t head_begin, const Fill& rows, Workers& workers);

/// dsink -= sum over all rows of exp(sink - lse) delta, in float64 and in order, for the heads that
/// lse and delta hold.
void sink_gradient(const TensorView& lse, const TensorView& delta, const TensorView& sink,
                   const TensorView& dsink, int64_t head_begin, std::span<const Fill> rows,
                   Workers& workers);

/// Zeros, or -inf where `minus_infinity`.
void fill_rows(const TensorView& dst, const Fill& fill, bool minus_infinity, Workers& workers);

}  // namespace longspan
