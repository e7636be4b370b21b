// Row operations of a schedule on device memory: one launch a step, tables made ahead of time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/tensor.h"

namespace longspan::cuda {

/// Rows src_row + i * src_step of view `src` and dst_row + i * dst_step of view `dst`, i in
/// [0, rows), for `heads` heads. Views are numbers of the list that run() gets.
struct RowItem {
  int32_t src = 0;
  int32_t dst = 0;
  int64_t src_row = 0, src_step = 1;
  int64_t dst_row = 0, dst_step = 1;
  int64_t rows = 0;
  int32_t src_head = 0, dst_head = 0, heads = 0;
  int32_t sequence = 0;               // kSink: of all rows
  int64_t token = 0, token_step = 1;  // kSink: of row i is token + i * token_step
};

struct RowParameters;

enum class RowOp {
  kCopy,    // equal types, or f32 to f16 and bf16, rounded to nearest even
  kWiden,   // f16 or bf16 to f32
  kAdd,     // dst += src, f32 or f64
  kMax,     // dst = max(dst, src), f32 or f64
  kZero,    // dst = 0; src is not used
  kLowest,  // dst = -inf, f32 or f64; src is not used
  kDelta,   // dst = sum of src * third over dim, in float64; src is O, third is dout
  kSink,    // the sink enters O (src) and LSE (dst): see host_ops.h
};

/// A list of items that run together, on the device that was current when it was made. Immutable;
/// run allocates nothing and may be captured.
class RowTable {
 public:
  /// Items run at the same time; with `in_order`, those that may meet in a row of dst run one after
  /// the other, as sums need it.
  static Result<RowTable> make(std::span<const RowItem> items, bool in_order = false);

  bool empty() const { return rows_ == 0; }
  /// `third`: dout of kDelta, the sink of kSink (no data: a logit of 0), else unused. Head h of an
  /// item of kSink is head head_begin + src_head + h of the sink. `lengths`: of each sequence, on
  /// the device; kSink leaves tokens at and beyond them alone. Null: there are none.
  Status run(RowOp op, std::span<const TensorView> views, const TensorView& third,
             int64_t head_begin, Stream stream, const int32_t* lengths = nullptr) const;

  /// dsink -= sum over all rows of exp(sink - lse) delta, in float64 and in the order of a fixed
  /// tree. Of each item src is the LSE and dst delta; the table has no other views.
  Status sink_gradient(std::span<const TensorView> views, const TensorView& sink,
                       const TensorView& dsink, int64_t head_begin, Stream stream) const;

 private:
  /// Items that fit the views of one launch.
  struct Launch {
    std::vector<int32_t> views;  // numbers of the caller's list, in order of use
    Memory items;
    Memory first;  // int64 of each item: rows before it; one more at the end
    int32_t count = 0;
    int32_t heads = 0;  // the most of any item
    int64_t rows = 0;
  };

  static RowParameters parameters(RowOp op, const Launch& launch, std::span<const TensorView> views,
                                  const TensorView& third, int64_t head_begin);

  std::vector<Launch> launches_;
  int64_t rows_ = 0;
};

/// Zeros all bytes from the view's first element to its last, which must be contiguous.
Status clear(const TensorView& view, Stream stream);

}  // namespace longspan::cuda
