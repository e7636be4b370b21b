// The steps around an execution of an engine: between the caller's float32 rows and packed 16-bit
// ones in scratch memory. All enqueue on `stream` of the current device.
#pragma once

#include <array>
#include <cstdint>

#include "longspan/problem.h"
#include "longspan/status.h"
#include "longspan/tensor.h"
#include "providers/rows/entries.h"

namespace longspan::rows {

/// Copies rows of the view's first heads to scratch memory, [rows, heads, dim]: engines cannot read
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

/// Brings an engine's O and LSE of some keys into the carried O and LSE.
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

/// What an engine's backward reads where the caller has no O. It computes delta itself as
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

}  // namespace longspan::rows
