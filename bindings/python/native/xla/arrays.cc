#include "arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "devices.h"

namespace longspan::xla {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "arrays"};
}

Result<DType> dtype_of(const ffi::AnyBuffer& array) {
  switch (array.element_type()) {
    case ffi::DataType::F64: return DType::kF64;
    case ffi::DataType::F32: return DType::kF32;
    case ffi::DataType::F16: return DType::kF16;
    case ffi::DataType::BF16: return DType::kBF16;
    default:
      return invalid(
          fmt::format("XLA element type {}; float64, float32, float16 and bfloat16 are "
                      "taken",
                      static_cast<int>(array.element_type())));
  }
}

std::span<const int64_t> extents(const ffi::AnyBuffer& array) {
  return {array.dimensions().begin(), array.dimensions().size()};
}

Result<TensorView> view(const ffi::AnyBuffer& array, Layout layout, int64_t dim) {
  const std::span<const int64_t> n = extents(array);
  const size_t outer = layout == Layout::kTHD ? 1 : 2;
  const size_t expected = outer + (dim == 0 ? 2 : 1);
  if (n.size() != expected) {
    return invalid(fmt::format("an array is [{}]; layout {} takes {} extents", fmt::join(n, ", "),
                               name(layout), expected));
  }
  LONGSPAN_TRY(const DType dtype, dtype_of(array));
  TensorView result{.data = array.untyped_data(), .dtype = dtype};
  result.heads = n[outer];
  result.dim = dim == 0 ? n[outer + 1] : dim;
  const int64_t row = result.heads * result.dim;
  result.batch = layout == Layout::kTHD ? 1 : n[layout == Layout::kBSHD ? 0 : 1];
  result.seq = n[layout == Layout::kBSHD ? 1 : 0];
  result.stride_batch = layout == Layout::kSBHD ? row : row * result.seq;
  result.stride_seq = layout == Layout::kSBHD ? row * result.batch : row;
  result.stride_head = result.dim;
  return result;
}

}  // namespace

Status Arrays::expect(size_t arguments, size_t results) const {
  if (arguments_.size() >= arguments && results_.size() >= results) return {};
  return invalid(
      fmt::format("{} arguments and {} results; the handler takes {} and {}: is the "
                  "Python package of another version?",
                  arguments_.size(), results_.size(), arguments, results));
}

ffi::AnyBuffer Arrays::argument(size_t place) const {
  return arguments_.get<ffi::AnyBuffer>(place).value();
}

ffi::AnyBuffer Arrays::result(size_t place) const {
  return *results_.get<ffi::AnyBuffer>(place).value();
}

Result<TensorView> rows_view(const ffi::AnyBuffer& array, Layout layout) {
  return view(array, layout, 0);
}

Result<TensorView> statistics_view(const ffi::AnyBuffer& array, Layout layout) {
  return view(array, layout, 1);
}

Result<TensorView> per_head_view(const ffi::AnyBuffer& array) {
  if (array.element_count() == 0) return TensorView{};
  LONGSPAN_TRY(const DType dtype, dtype_of(array));
  return packed_view(array.untyped_data(), dtype, 1, static_cast<int64_t>(array.element_count()),
                     1);
}

Result<TensorView> bias_view(const ffi::AnyBuffer& array) {
  if (array.element_count() == 0) return TensorView{};
  const std::span<const int64_t> n = extents(array);
  if (n.size() != 4) {
    return invalid(fmt::format("the bias is [{}]; it takes 4 extents", fmt::join(n, ", ")));
  }
  LONGSPAN_TRY(const DType dtype, dtype_of(array));
  return TensorView{.data = array.untyped_data(),
                    .dtype = dtype,
                    .batch = n[0],
                    .seq = n[2],
                    .heads = n[1],
                    .dim = n[3],
                    .stride_batch = n[1] * n[2] * n[3],
                    .stride_seq = n[3],
                    .stride_head = n[2] * n[3]};
}

Workspace workspace_of(const ffi::AnyBuffer& bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.untyped_data());
  const uintptr_t past = (kWorkspaceAlignment - begin % kWorkspaceAlignment) % kWorkspaceAlignment;
  if (bytes.size_bytes() <= past) return {};
  return {reinterpret_cast<void*>(begin + past), bytes.size_bytes() - past};
}

Result<Dropout> dropout_of(const Problem& problem, const ffi::AnyBuffer& words,
                           const Where& where) {
  Dropout dropout = problem.dropout_values();
  if (words.element_count() == 0) return dropout;
  std::array<uint32_t, 2> seed = {};
  if (words.size_bytes() != sizeof(seed)) {
    return invalid(fmt::format("the dropout seed has {} bytes; it takes two words of 32 bits",
                               words.size_bytes()));
  }
  if (where.ordinal != kHost) {
    dropout.device_key = static_cast<const uint32_t*>(words.untyped_data());
    return dropout;
  }
  LONGSPAN_CHECK_OK(where.read(seed.data(), words));
  dropout.seed = uint64_t{seed[1]} << 32 | seed[0];
  return dropout;
}

}  // namespace longspan::xla
