// Which rows a rank holds, for Python.
#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <string>
#include <vector>

#include "errors.h"
#include "exports.h"
#include "handles.h"

namespace longspan::python {
namespace {

using ffi::String;

const Shard& shard_of(const Call& call, const std::string& side, int64_t rank) {
  if (rank < 0 || rank >= call.partition().ranks()) {
    raise({ErrorCode::kInvalidArgument,
           "rank is " + std::to_string(rank) + " of " + std::to_string(call.partition().ranks()),
           "python"});
  }
  if (side != "q" && side != "k") {
    raise({ErrorCode::kInvalidArgument, "side is '" + side + "'; it must be q or k", "python"});
  }
  const int number = static_cast<int>(rank);
  return side == "q" ? call.partition().q(number) : call.partition().k(number);
}

/// (batch, seq) of a rank's tensors of one side.
ffi::Array<int64_t> shard_shape(const CallRef& call, const String& side, int64_t rank) {
  const Shard& shard = shard_of(*call->call, side, rank);
  return {shard.batch, shard.rows / std::max<int64_t>(shard.batch, 1)};
}

void write(const std::vector<int64_t>& values, const ffi::TensorView& to) {
  const bool fits = to.ndim() == 1 && to.size(0) == static_cast<int64_t>(values.size()) &&
                    to.IsContiguous() && to.dtype().code == kDLInt && to.dtype().bits == 64 &&
                    to.device().device_type == kDLCPU;
  if (!fits) {
    raise({ErrorCode::kInvalidArgument,
           "the tensor for rows must be contiguous int64 of extent " +
               std::to_string(values.size()) + " on the cpu",
           "python"});
  }
  std::copy(values.begin(), values.end(), static_cast<int64_t*>(to.data_ptr()));
}

/// Global row of each local row.
void shard_indices(const CallRef& call, const String& side, int64_t rank,
                   const ffi::TensorView& to) {
  shard_of(*call->call, side, rank);
  const Problem& problem = call->call->problem();
  const Partition& partition = call->call->partition();
  const int number = static_cast<int>(rank);
  write(side == "q" ? partition.q_indices(problem, number) : partition.k_indices(problem, number),
        to);
}

/// Position inside its sequence of each local row.
void shard_positions(const CallRef& call, const String& side, int64_t rank,
                     const ffi::TensorView& to) {
  shard_of(*call->call, side, rank);
  const Partition& partition = call->call->partition();
  const int number = static_cast<int>(rank);
  write(side == "q" ? partition.q_positions(number) : partition.k_positions(number), to);
}

/// For each global row its place in the concatenation of all ranks' local rows.
void shard_inverse(const CallRef& call, const String& side, const ffi::TensorView& to) {
  shard_of(*call->call, side, 0);
  const Problem& problem = call->call->problem();
  const Partition& partition = call->call->partition();
  write(side == "q" ? partition.q_inverse(problem) : partition.k_inverse(problem), to);
}

}  // namespace
}  // namespace longspan::python

LONGSPAN_EXPORT(shard_shape)
LONGSPAN_EXPORT(shard_indices)
LONGSPAN_EXPORT(shard_positions)
LONGSPAN_EXPORT(shard_inverse)
