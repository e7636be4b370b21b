#include "longspan/tensor.h"

#include <fmt/format.h>

namespace longspan {

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "f64";
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
  }
  return "";
}

Result<DType> parse_dtype(std::string_view text) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    if (text == name(dtype)) return dtype;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("dtype \"{}\" is unknown; one of f64, f32, f16, bf16", text), "tensor"};
}

int64_t TensorView::extent_bytes() const {
  if (rows() == 0 || heads == 0 || dim == 0) return 0;
  const int64_t blocks = pages == nullptr ? batch : page_count;
  const int64_t last =
      (blocks - 1) * stride_batch + (seq - 1) * stride_seq + (heads - 1) * stride_head + dim - 1;
  return (last + 1) * size_of(dtype);
}

}  // namespace longspan
