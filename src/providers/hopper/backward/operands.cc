#include "providers/hopper/backward/operands.h"

#include <algorithm>

#include "providers/hopper/forward/kernels.h"
#include "providers/hopper/maps.h"
#include "providers/hopper/readable.h"
#include "providers/rows/views.h"

namespace longspan::hopper {
namespace {

/// Copies one after the other.
class Packer {
 public:
  Packer(std::byte* to, Stream stream) : to_(to), stream_(stream) {}

  /// Where there are no rows something is mapped all the same, and never read.
  Result<TensorView> add(TensorView view, Range range, Range heads) {
    const int64_t count = range.last - range.first;
    view.heads = heads.last - heads.first;
    view.data = static_cast<std::byte*>(view.data) + heads.first * view.stride_head * 2;
    const TensorView packed = packed_view(to_, view.dtype, std::max<int64_t>(count, 1),
                                          std::max<int64_t>(view.heads, 1), view.dim);
    if (count > 0 && view.heads > 0) {
      LONGSPAN_CHECK_OK(rows::pack_view(view, range, to_, false, stream_));
    }
    to_ += count * view.heads * view.dim * 2;
    return packed;
  }

 private:
  std::byte* to_;
  Stream stream_;
};

Status map(const TensorView& view, Box box, int64_t first_row, int64_t first_head, Operand& to) {
  LONGSPAN_TRY(to.tensor, map_rows(view, box));
  to.first_row = static_cast<int32_t>(first_row);
  to.first_head = static_cast<int32_t>(first_head);
  return {};
}

}  // namespace

bool in_place(const BackwardTiles& t) {
  if (!in_place(t.q, t.tiles, false) || !in_place(t.dout, t.tiles, false)) return false;
  return in_place(t.k, t.tiles, true) && in_place(t.v, t.tiles, true);
}

OperandViews views_of(const BackwardTiles& t) {
  return {.q = t.q, .k = t.k, .v = t.v, .dout = t.dout};
}

Result<OperandViews> packed_operands(const BackwardTiles& t, const ReadRows& reads,
                                     int64_t key_head, Range heads, std::byte* scratch) {
  OperandViews views{.first_query = reads.q.first,
                     .first_key = reads.k.first,
                     .first_head = heads.first,
                     .first_key_head = key_head};
  Packer packer(scratch, t.stream);
  const Range one_head{key_head, key_head + 1};
  LONGSPAN_TRY(views.q, packer.add(t.q, reads.q, heads));
  LONGSPAN_TRY(views.dout, packer.add(t.dout, reads.q, heads));
  LONGSPAN_TRY(views.k, packer.add(t.k, reads.k, one_head));
  LONGSPAN_TRY(views.v, packer.add(t.v, reads.k, one_head));
  return views;
}

Status map_operands(const OperandViews& w, const GradientColumns& columns, int key_rows,
                    ScoreParameters& s, GradientParameters& g) {
  const auto queries = [&](const TensorView& view, Box box, Operand& to) {
    return map(view, box, w.first_query, w.first_head, to);
  };
  const auto keys = [&](const TensorView& view, Box box, Operand& to) {
    return map(view, box, w.first_key, w.first_key_head, to);
  };
  LONGSPAN_CHECK_OK(queries(w.q, {kUnitQueries, 1}, s.q));
  LONGSPAN_CHECK_OK(queries(w.dout, {kUnitQueries, 1}, s.dout));
  LONGSPAN_CHECK_OK(keys(w.k, {key_rows, 1}, s.k));
  LONGSPAN_CHECK_OK(keys(w.v, {key_rows, 1}, s.v));
  const auto box_of = [](int64_t box_columns) {
    return Box{kBlockSide, static_cast<int>(box_columns / 64)};
  };
  LONGSPAN_CHECK_OK(keys(w.k, box_of(columns.all), g.operands[static_cast<int>(Gradient::kDq)]));
  LONGSPAN_CHECK_OK(queries(w.q, box_of(columns.all), g.operands[static_cast<int>(Gradient::kDk)]));
  return queries(w.dout, box_of(columns.values), g.operands[static_cast<int>(Gradient::kDv)]);
}

}  // namespace longspan::hopper
