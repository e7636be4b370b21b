#include "providers/hopper/maps.h"

#include <fmt/format.h>

#include "cuda/driver.h"

namespace longspan::hopper {
namespace {

/// Strides of extents of one are not used, but must be legal.
cuuint64_t stride_bytes(int64_t extent, int64_t stride) {
  return static_cast<cuuint64_t>(extent > 1 ? stride * 2 : 128);
}

}  // namespace

bool mappable(const TensorView& view) {
  const TensorView v = rows::flattened(view);
  const auto usable = [](int64_t extent, int64_t stride) {
    constexpr int64_t kMostElements = int64_t{1} << 38;
    return extent == 1 || (stride > 0 && stride < kMostElements && stride % 8 == 0);
  };
  if (v.pages != nullptr || v.rows() == 0 || reinterpret_cast<uintptr_t>(v.data) % 16 != 0) {
    return false;
  }
  return usable(v.seq, v.stride_seq) && usable(v.heads, v.stride_head) &&
         usable(v.batch, v.stride_batch);
}

bool crosses(const TensorView& view, int64_t first, int64_t last) {
  return first < last && !even(view) && first / view.seq != (last - 1) / view.seq;
}

Result<Mapped> map_rows(const TensorView& view, const Box& box) {
  static const auto encode =
      cuda::driver_function<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (!encode.ok()) return encode.error();
  const TensorView v = rows::flattened(view);
  // A box takes several blocks of 64 columns where rows consist of whole ones.
  const bool whole_blocks = v.dim % 64 == 0;
  const int64_t blocks = whole_blocks ? v.dim / 64 : 1;
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(whole_blocks ? 64 : v.dim),
                                static_cast<cuuint64_t>(v.seq), static_cast<cuuint64_t>(blocks),
                                static_cast<cuuint64_t>(v.heads), static_cast<cuuint64_t>(v.batch)};
  const cuuint64_t strides[] = {stride_bytes(v.seq, v.stride_seq), 128,
                                stride_bytes(v.heads, v.stride_head),
                                stride_bytes(v.batch, v.stride_batch)};
  const cuuint32_t sides[] = {64, static_cast<cuuint32_t>(box.rows),
                              static_cast<cuuint32_t>(whole_blocks ? box.blocks : 1),
                              static_cast<cuuint32_t>(box.heads), 1};
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  Mapped result{.rows = static_cast<int32_t>(v.seq),
                .box_blocks = whole_blocks ? box.blocks : 1,
                .by_blocks = whole_blocks};
  const CUtensorMapDataType type =
      v.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUresult refused =
      (*encode)(&result.map, type, 5, v.data, extents, strides, sides, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (refused == CUDA_SUCCESS) return result;
  return Error{
      ErrorCode::kInternal,
      fmt::format("the driver refused (CUresult {}) a tensor map of {} x {} rows, {} heads, "
                  "{} columns with strides of {}, {} and {} elements",
                  static_cast<int>(refused), v.batch, v.seq, v.heads, v.dim, v.stride_batch,
                  v.stride_seq, v.stride_head),
      "hopper"};
}

}  // namespace longspan::hopper
