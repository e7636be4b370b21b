// The steps around an execution of cuDNN: between the caller's float32 rows and packed 16-bit ones
// in scratch memory. All enqueue on `stream` of the current device.
#pragma once

#include <array>
#include <cstdint>

#include "longspan/problem.h"
#include "longspan/status.h"
#include "longspan/tensor.h"
#include "providers/cudnn/groups.h"

namespace longspan::cudnn {

/// An Entry as kernels see it. Its rows lie in scratch memory from q_begin and k_begin on,
/// those of all entries packed. Cut entries leave gaps: 0 in what cuDNN reads (its statistics:
/// +inf, without weight), and not looked at in what it writes.
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
};

/// Where one tensor of a ragged graph has its rows.
struct RaggedTensor {
  TensorView view;    // in place; without rows: packed in scratch memory
  int64_t first = 0;  // elements of the view before the address that cuDNN is given
  int64_t width = 0;  // elements of a packed row
  bool keys = false;  // rows are those of keys
};

/// Where entries end at lengths that come with the call: the list as it is then, whose rows stay
/// where they are in scratch memory. All on the device.
struct Cutting {
  const EntryTokens* tokens = nullptr;  // of each entry; null: entries are there as a whole
  ActualLengths lengths;
  DeviceEntry* entries = nullptr;                      // scratch
  int32_t *lengths_q = nullptr, *lengths_k = nullptr;  // scratch: of each declared entry
};

/// Addresses of ragged entries, in elements: `count` is rounded up to `batch` by empty ones.
struct OffsetTables {
  EntryList list;
  int64_t batch = 0;
  std::array<RaggedTensor, 9> tensors;
  int64_t* tables = nullptr;  // one for each tensor, of batch + 1 and rounded up to 16 bytes
  Cutting cutting;            // done by the same launch
};

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
  TensorView o, lse;             // carried
  const void* part = nullptr;    // [rows_q, heads, dim_v]
  const float* stats = nullptr;  // [rows_q, heads]
  DType dtype = DType::kBF16;
};

Status merge(const Merge& merge, Stream stream);

/// Between a view of LSE and scratch memory, [rows_q, heads].
struct Statistics {
  EntryList list;
  TensorView lse;
  float* packed = nullptr;
};

Status pack_statistics(const Statistics& statistics, Stream stream);
Status unpack_statistics(const Statistics& statistics, Stream stream);

/// What cuDNN's backward reads where the caller has no O. It computes delta itself as
/// rowsum(dout * o); `o` becomes a tensor for which that sum is the caller's delta to float32
/// accuracy, better than with the true O in 16 bits: few elements of each row are not zero, the
/// first delta / dout, each next one what rounding left over.
struct BackwardRows {
  EntryList list;
  TensorView dout, delta;
  void* packed_dout = nullptr;  // [rows_q, heads, dim_v]; null: not wanted
  void* o = nullptr;            // [rows_q, heads, dim_v]
};

Status make_backward_rows(const BackwardRows& rows, Stream stream);

/// 16-bit results in scratch memory, [rows, heads, dim].
struct Result16 {
  const void* packed = nullptr;
  TensorView to;      // f32, or of the results' type
  int64_t heads = 0;  // of the packed rows: the first ones of the view
  bool keys = false;
  bool adds = false;  // else what the view held is not read
  float factor = 1;
};

/// Brings results to the caller's rows. Views are all f32, or all of `dtype`.
struct Delivery {
  EntryList list;
  std::array<Result16, 3> results;
  int64_t count = 0;
  DType dtype = DType::kBF16;
};

Status deliver(const Delivery& delivery, Stream stream);

/// Rows of the list become what queries without keys and keys without queries have: 0, and -inf in
/// statistics. Views without rows are left out.
struct Blank {
  EntryList list;
  std::array<TensorView, 2> queries;  // of 16 bits, or statistics
  std::array<TensorView, 2> keys;
};

Status blank(const Blank& blank, Stream stream);

}  // namespace longspan::cudnn
