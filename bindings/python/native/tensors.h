// Framework tensors, which come as DLPack, as views.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/optional.h>

#include <span>

#include "longspan/device.h"
#include "longspan/problem.h"
#include "longspan/tensor.h"

namespace longspan::python {

using FfiTensor = tvm::ffi::TensorView;
using OptionalTensor = tvm::ffi::Optional<FfiTensor>;

/// [tokens, heads, dim] or [batch, seq, heads, dim]. invalid_argument names the tensor when it has
/// other extents, a type that longspan has not, a dim that is not contiguous, or another device.
TensorView rows_view(const FfiTensor& tensor, const char* name, const Device& device);
/// [tokens, heads] or [batch, seq, heads].
TensorView statistics_view(const FfiTensor& tensor, const char* name, const Device& device);
/// Contiguous statistics of these rows at `address`, in accumulator type.
TensorView statistics_at(int64_t address, const TensorView& rows);
/// [heads]. Views without data where there is no tensor.
TensorView per_head_view(const OptionalTensor& tensor, const char* name, const Device& device);
TensorView optional_rows_view(const OptionalTensor& tensor, const char* name, const Device& device);
/// Of int32, contiguous, one per sequence.
std::span<const int32_t> lengths_view(const OptionalTensor& tensor, const char* name,
                                      const Device& device);

}  // namespace longspan::python
