#include "providers/cudnn/heads.h"

#include <algorithm>

#include "providers/cudnn/bias.h"
#include "providers/cudnn/budget.h"

namespace longspan::cudnn {
namespace {

TensorView heads_of(TensorView view, int64_t first, int64_t count) {
  if (view.data == nullptr) return view;
  view.data = static_cast<std::byte*>(view.data) + first * view.stride_head * size_of(view.dtype);
  view.heads = count;
  return view;
}

}  // namespace

int64_t slice_bytes(const TileProblem& p) {
  return p.direction == Direction::kBackward ? score_bytes(p) : bias_bytes(p);
}

TileProblem head_slice(const TileProblem& p) {
  const int64_t all = key_heads(p);
  if (p.features.bias == Bias::kNone || all == 1) return p;
  for (int64_t heads = all; heads > 0; --heads) {
    if (all % heads != 0) continue;
    TileProblem slice = p;
    slice.heads_q = heads * p.group;
    slice.heads_kv = heads;
    if (heads == 1 || slice_bytes(slice) <= kSliceBytes) return heads == all ? p : slice;
  }
  return p;
}

ForwardTiles slice_of(const ForwardTiles& t, const TileProblem& slice, int64_t index) {
  ForwardTiles part = t;
  for (TensorView* view : {&part.q, &part.o, &part.lse}) {
    *view = heads_of(*view, index * slice.heads_q, slice.heads_q);
  }
  for (TensorView* view : {&part.k, &part.v}) {
    *view = heads_of(*view, index * slice.heads_kv, slice.heads_kv);
  }
  part.terms.head_begin += index * slice.heads_q;
  return part;
}

BackwardTiles slice_of(const BackwardTiles& t, const TileProblem& slice, int64_t index) {
  BackwardTiles part = t;
  for (TensorView* view : {&part.q, &part.dout, &part.lse, &part.delta, &part.o, &part.dq}) {
    *view = heads_of(*view, index * slice.heads_q, slice.heads_q);
  }
  for (TensorView* view : {&part.k, &part.v, &part.dk, &part.dv}) {
    *view = heads_of(*view, index * slice.heads_kv, slice.heads_kv);
  }
  part.terms.head_begin += index * slice.heads_q;
  return part;
}

}  // namespace longspan::cudnn
