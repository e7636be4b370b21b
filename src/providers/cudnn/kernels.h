// The steps around an execution of cuDNN: between the caller's float32 rows and packed 16-bit ones
// in scratch memory. All enqueue on `stream` of the current device.
#pragma once

#include <cstdint>

#include "longspan/status.h"
#include "longspan/tensor.h"

namespace longspan::cudnn {

/// An Entry as kernels see it. Its rows lie in scratch memory from q_begin and k_begin on,
/// those of all entries packed.
struct DeviceEntry {
  int64_t q_row = 0, k_row = 0;
  int64_t q_begin = 0, k_begin = 0;
  int64_t nq = 0, nk = 0;
};

/// The entries of one execution.
struct EntryList {
  const DeviceEntry* entries = nullptr;  // on the device
  int64_t count = 0;
  int64_t rows_q = 0, rows_k = 0;  // of all
  bool row_major = false;          // statistics lie [row, head]; else [head, row] entry by entry
};

/// Addresses of ragged entries, in elements: `count` is rounded up to `batch` by empty ones.
struct OffsetTables {
  EntryList list;
  int64_t batch = 0;
  TensorView q, k, v;
  int64_t heads_q = 0, heads_kv = 0, dim_qk = 0, dim_v = 0;
  int64_t* tables = nullptr;  // kOffsetTables, each of batch + 1 and rounded up to 16 bytes
};

/// In the order of their memory: rows of the views, then packed rows in scratch memory of heads_q
/// times 1, dim_v and dim_qk elements and of heads_kv times dim_qk and dim_v.
enum OffsetTable { kViewQ, kViewK, kViewV, kPackedStats, kPackedO, kPackedQ, kPackedK, kPackedV };
inline constexpr int64_t kOffsetTables = 8;
/// From one table to the next, in elements.
inline constexpr int64_t offset_table_size(int64_t batch) { return (batch + 2) / 2 * 2; }

Status write_offsets(const OffsetTables& tables, Stream stream);

/// Copies rows of the view's first heads to scratch memory, [rows, heads, dim]: cuDNN cannot read
/// them where they are.
struct Pack {
  EntryList list;
  TensorView from;
  int64_t heads = 0;
  bool keys = false;     // rows are those of keys
  bool negated = false;  // -x for every element x
  void* to = nullptr;
};

Status pack(const Pack& pack, Stream stream);

/// Brings cuDNN's O and LSE of some keys into the carried O and LSE.
struct Merge {
  EntryList list;
  TensorView o, lse;     // carried
  void* part = nullptr;  // [rows_q, heads, dim_v]
  const float* stats = nullptr;
  DType dtype = DType::kBF16;
};

Status merge(const Merge& merge, Stream stream);

/// What cuDNN's backward reads. It computes delta itself as rowsum(dout * o); `o` becomes a tensor
/// for which that sum is the caller's delta to float32 accuracy, better than with the true O in 16
/// bits: few elements of each row are not zero, the first delta / dout, each next one what rounding
/// left over.
struct BackwardRows {
  EntryList list;
  TensorView dout, lse, delta;
  void* packed_dout = nullptr;  // [rows_q, heads, dim_v]
  void* o = nullptr;            // likewise
  float* stats = nullptr;
};

Status make_backward_rows(const BackwardRows& rows, Stream stream);

/// Adds 16-bit gradients to the caller's.
struct Gradients {
  EntryList list;
  TensorView dq, dk, dv;
  void* part_dq = nullptr;  // [rows_q, heads_q, dim_qk]
  void* part_dk = nullptr;  // [rows_k, heads_kv, dim_qk]
  void* part_dv = nullptr;  // [rows_k, heads_kv, dim_v]
  int64_t heads_kv = 0;     // of the parts: the first ones of the views
  bool negated_dq = false;  // part_dq holds -dq
  DType dtype = DType::kBF16;
};

Status add_gradients(const Gradients& gradients, Stream stream);

}  // namespace longspan::cudnn
