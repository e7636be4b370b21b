// Row operations of the schedule on host memory. Results do not depend on the number of threads.
#pragma once

#include "base/workers.h"
#include "longspan/schedule.h"
#include "longspan/tensor.h"

namespace longspan {

/// Pack and unpack: equal types, or accumulator type to the problem's type (rounded to nearest
/// even).
void copy_rows(const TensorView& src, const TensorView& dst, const Copy& copy, Workers& workers);

/// dst += src, both accumulator type.
void add_rows(const TensorView& src, const TensorView& dst, const Copy& copy, Workers& workers);

/// delta = rowsum(dout * o), summed in float64, for rows src_row.. of o and dout. o is in
/// accumulator type.
void delta_rows(const TensorView& o, const TensorView& dout, const TensorView& delta,
                const Copy& rows, Workers& workers);

/// Zeros, or -inf where `minus_infinity`.
void fill_rows(const TensorView& dst, const Fill& fill, bool minus_infinity, Workers& workers);

}  // namespace longspan
