#include "tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "errors.h"

namespace longspan::python {
namespace {

[[noreturn]] void invalid(const char* name, const std::string& what) {
  raise({ErrorCode::kInvalidArgument, fmt::format("tensor {}: {}", name, what), "python"});
}

DType dtype_of(const DLDataType& type, const char* name) {
  if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16) return DType::kBF16;
  if (type.lanes == 1 && type.code == kDLFloat) {
    if (type.bits == 16) return DType::kF16;
    if (type.bits == 32) return DType::kF32;
    if (type.bits == 64) return DType::kF64;
  }
  invalid(name, fmt::format("type code {} with {} bits; float64, float32, float16 and bfloat16 are "
                            "taken",
                            static_cast<int>(type.code), static_cast<int>(type.bits)));
}

void check_device(const FfiTensor& tensor, const char* name, const Device& device) {
  const DLDevice at = tensor.device();
  const bool on_cuda = at.device_type == kDLCUDA;
  if (on_cuda == device.is_cuda() && (!on_cuda || at.device_id == device.ordinal)) return;
  const std::string where = on_cuda                    ? fmt::format("cuda:{}", at.device_id)
                            : at.device_type == kDLCPU ? "cpu"
                                                       : "another kind of device";
  invalid(name, fmt::format("it lies on {}, the engine computes on {}", where, device.name));
}

/// The last `inner` extents are heads and what follows; one or two come before them.
TensorView view_of(const FfiTensor& tensor, const char* name, const Device& device, int inner) {
  check_device(tensor, name, device);
  const int rows = tensor.ndim() - inner;
  if (rows != 1 && rows != 2) {
    invalid(name, fmt::format("{} extents; it takes {} (tokens first) or {} (batch, seq first)",
                              tensor.ndim(), inner + 1, inner + 2));
  }
  TensorView view{.data = tensor.data_ptr(), .dtype = dtype_of(tensor.dtype(), name)};
  view.batch = rows == 2 ? tensor.size(0) : 1;
  view.seq = tensor.size(rows - 1);
  view.heads = tensor.size(rows);
  view.dim = inner == 2 ? tensor.size(rows + 1) : 1;
  view.stride_seq = tensor.stride(rows - 1);
  view.stride_batch = rows == 2 ? tensor.stride(0) : view.seq * view.stride_seq;
  view.stride_head = tensor.stride(rows);
  if (inner == 2 && view.dim > 1 && view.rows() > 0 && tensor.stride(rows + 1) != 1) {
    invalid(name, fmt::format("stride {} of its last extent; it must be 1 (make it contiguous)",
                              tensor.stride(rows + 1)));
  }
  return view;
}

}  // namespace

TensorView rows_view(const FfiTensor& tensor, const char* name, const Device& device) {
  return view_of(tensor, name, device, 2);
}

TensorView statistics_view(const FfiTensor& tensor, const char* name, const Device& device) {
  return view_of(tensor, name, device, 1);
}

TensorView statistics_at(int64_t address, const TensorView& rows) {
  return {.data = reinterpret_cast<void*>(address),
          .dtype = accumulator(rows.dtype),
          .batch = rows.batch,
          .seq = rows.seq,
          .heads = rows.heads,
          .dim = 1,
          .stride_batch = rows.seq * rows.heads,
          .stride_seq = rows.heads,
          .stride_head = 1};
}

TensorView optional_rows_view(const OptionalTensor& tensor, const char* name,
                              const Device& device) {
  return tensor.has_value() ? rows_view(*tensor, name, device) : TensorView{};
}

TensorView per_head_view(const OptionalTensor& tensor, const char* name, const Device& device) {
  if (!tensor.has_value()) return {};
  const FfiTensor& given = *tensor;
  check_device(given, name, device);
  if (given.ndim() != 1) {
    invalid(name, fmt::format("{} extents; it takes one, a value per query head", given.ndim()));
  }
  const int64_t heads = given.size(0);
  return {given.data_ptr(), dtype_of(given.dtype(), name), 1, 1, heads, 1, heads, heads,
          given.stride(0)};
}

std::span<const int32_t> lengths_view(const OptionalTensor& tensor, const char* name,
                                      const Device& device) {
  if (!tensor.has_value()) return {};
  const FfiTensor& given = *tensor;
  check_device(given, name, device);
  const DLDataType type = given.dtype();
  if (given.ndim() != 1 || type.code != kDLInt || type.bits != 32 || !given.IsContiguous()) {
    invalid(name, "it takes one extent of contiguous int32, a length per sequence");
  }
  return {static_cast<const int32_t*>(given.data_ptr()), static_cast<size_t>(given.size(0))};
}

}  // namespace longspan::python
