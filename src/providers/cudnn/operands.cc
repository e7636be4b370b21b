#include "providers/cudnn/operands.h"

#include "providers/cudnn/bias.h"
#include "providers/cudnn/layout.h"

namespace longspan::cudnn {
namespace {

/// Makes the operands of one group.
class Maker {
 public:
  Maker(const TileProblem& problem, const Group& group) : problem_(problem), group_(group) {}

  Operand queries(const TensorView& view, int64_t dim, bool allowed) const {
    return make(view, false, problem_.heads_q, dim, allowed);
  }
  Operand keys(const TensorView& view, int64_t dim, bool allowed) const {
    return make(view, true, key_heads(problem_), dim, allowed);
  }
  Operand in_scratch(const Operand& o) const { return make(o.view, o.keys, o.heads, o.dim, false); }

 private:
  Operand make(const TensorView& view, bool keys, int64_t heads, int64_t dim, bool allowed) const {
    Operand result{.view = view, .keys = keys, .heads = heads, .dim = dim};
    result.strides = packed_entries(group_, keys, heads, dim);
    if (!allowed || view.rows() == 0) return result;
    const Layout layout = layout_of(view, group_, keys, heads);
    result.in_place = layout.direct;
    if (layout.direct) result.strides = layout.strides;
    return result;
  }

  const TileProblem& problem_;
  const Group& group_;
};

/// Rows without gaps between them, apart from those of no tile.
bool dense_rows(const Operand& o) {
  return o.in_place && even(o.view) && o.strides.row == o.heads * o.dim;
}

/// cuDNN adds up a float32 dq at the offsets of q and reads it at those of dq. Its buffers hold the
/// declared rows, as far apart as those of statistics and gradients.
void make_ragged(const Maker& maker, Operands& all) {
  for (const Slot slot : {Slot::kStats, Slot::kDk, Slot::kDv}) {
    if (!dense_rows(all[slot])) all[slot] = maker.in_scratch(all[slot]);
  }
  Operand& q = all[Slot::kQ];
  Operand& dq = all[Slot::kDq];
  if (dense_rows(q) && dense_rows(dq) && q.strides == dq.strides) return;
  q = maker.in_scratch(q);
  dq = maker.in_scratch(dq);
}

}  // namespace

Operands operands_of(const TileProblem& p, const Group& group, const ForwardTiles& t) {
  const Maker maker(p, group);
  const bool whole = p.features.whole;
  Operands all;
  all[Slot::kQ] = maker.queries(t.q, p.dim_qk, t.scale >= 0);
  all[Slot::kK] = maker.keys(t.k, p.dim_qk, true);
  all[Slot::kV] = maker.keys(t.v, p.dim_v, true);
  all[Slot::kO] = maker.queries(t.o, p.dim_v, whole);
  all[Slot::kStats] = maker.queries(t.lse, 1, whole);
  return all;
}

Operands operands_of(const TileProblem& p, const Group& group, const BackwardTiles& t) {
  const Maker maker(p, group);
  const bool whole = p.features.whole;
  Operands all;
  all[Slot::kQ] = maker.queries(t.q, p.dim_qk, t.scale >= 0);
  all[Slot::kK] = maker.keys(t.k, p.dim_qk, true);
  all[Slot::kV] = maker.keys(t.v, p.dim_v, true);
  all[Slot::kO] = maker.queries(t.o, p.dim_v, true);
  // Where a bias of -inf hides a row, cuDNN would subtract its LSE of -inf. Packed ones are inf
  // there.
  const bool biased = p.features.bias != Bias::kNone;
  all[Slot::kStats] = maker.queries(t.lse, 1, !biased && (whole || !group.ragged));
  all[Slot::kDout] = maker.queries(t.dout, p.dim_v, true);
  all[Slot::kDq] = maker.queries(t.dq, p.dim_qk, whole && t.scale >= 0 && !group.adds_dq);
  all[Slot::kDk] = maker.keys(t.dk, p.dim_qk, whole);
  all[Slot::kDv] = maker.keys(t.dv, p.dim_v, whole);
  if (group.ragged) make_ragged(maker, all);
  return all;
}

GraphKey graph_key(const TileProblem& p, const Group& group, const Operands& operands,
                   int ordinal) {
  GraphKey key{.direction = p.direction,
               .dtype = p.dtype,
               .heads_q = p.heads_q,
               .heads_kv = key_heads(p),
               .dim_qk = p.dim_qk,
               .dim_v = p.dim_v,
               .deterministic = p.features.deterministic && p.direction == Direction::kBackward,
               .ragged = group.ragged,
               .padded = group.padded,
               .mask = group.mask,
               .batch = group.batch,
               .sq = group.sq,
               .skv = group.skv,
               .total_q = group.total_q,
               .total_k = group.total_k,
               .bias = bias_shape(p, group),
               .ordinal = ordinal};
  for (size_t i = 0; i < kTensors; ++i) key.strides.tensors[i] = operands.tensors[i].strides;
  return key;
}

}  // namespace longspan::cudnn
