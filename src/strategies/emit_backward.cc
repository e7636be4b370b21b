#include <utility>

#include "strategies/layouts.h"

namespace longspan {
namespace {

/// delta of this rank's own rows, from what forward returned or kept.
BufferId own_delta(Emission& e, BufferId o, BufferId dout) {
  const BufferId delta = e.workspace({.quantity = Quantity::kDelta,
                                      .name = "delta",
                                      .dtype = accumulator(e.problem.dtype),
                                      .rows = e.setting.partition.q(e.rank).rows,
                                      .heads = e.problem.heads_q,
                                      .dim = 1,
                                      .runs = e.own_q.runs});
  e.builder.delta(o, dout, delta, copy_rows(e.own_q, o, delta, e.problem.heads_q));
  return delta;
}

/// O at the rows of this rank's tensors.
BufferId own_o(Emission& e) {
  return keeps_exact_o(e.setting) ? exact_o(e) : e.operand(Quantity::kO, e.problem.dtype);
}

/// dq, dk and dv as attend steps leave them. Gathered keys are all attended.
void start_gradients(Emission& e, AttendBuffers& buffers) {
  std::vector<Fill> fills;
  for (const BufferId id : {buffers.dq, buffers.dk, buffers.dv}) {
    if (e.gathers && id != buffers.dq) continue;
    if (e.whole_gradients) {
      const std::vector<Fill> more = unattended(e, id);
      fills.insert(fills.end(), more.begin(), more.end());
    } else {
      fills.push_back(whole(e, id));
    }
  }
  e.builder.fill(std::move(fills));
}

int64_t compute(Emission& e, AttendBuffers& buffers) {
  if (e.problem.sink == Sink::kLearnable && e.share.q_heads() > 0) {
    e.builder.sink_gradient(buffers.lse, buffers.delta, attended_rows(e, buffers.lse));
  }
  start_gradients(e, buffers);
  return attend_all(e, buffers);
}

/// Tensors of the call.
struct Operands {
  BufferId dout, dq, dk, dv;
};

/// On this rank's own rows.
int64_t backward_in_place(Emission& e, const Operands& x) {
  const DType dtype = e.problem.dtype;
  const bool final = e.whole_gradients;
  const BufferId o = own_o(e);
  AttendBuffers buffers{.q = e.operand(Quantity::kQ, dtype),
                        .k = e.operand(Quantity::kK, dtype),
                        .v = e.operand(Quantity::kV, dtype),
                        .lse = e.operand(Quantity::kLse, accumulator(dtype)),
                        .dout = x.dout,
                        .dq = x.dq,
                        .dk = x.dk,
                        .dv = x.dv};
  if (final) {
    buffers.o = o;
    return compute(e, buffers);
  }
  if (!keeps_exact_o(e.setting)) buffers.o = o;
  buffers.delta = own_delta(e, o, x.dout);
  buffers.dq = accumulator_buffer(e, Quantity::kDq);
  buffers.dk = accumulator_buffer(e, Quantity::kDk);
  buffers.dv = accumulator_buffer(e, Quantity::kDv);
  const int64_t key_rows = compute(e, buffers);
  std::vector<Copy> copies = copy_rows(e.own_q, buffers.dq, x.dq, e.problem.heads_q);
  for (const auto& [from, to] : {Move{buffers.dk, x.dk}, Move{buffers.dv, x.dv}}) {
    const std::vector<Copy> more = copy_rows(e.own_k, from, to, e.problem.heads_kv);
    copies.insert(copies.end(), more.begin(), more.end());
  }
  e.builder.copy(StepKind::kUnpack, std::move(copies));
  return key_rows;
}

/// After the same strategy's forward: only dout has to change its layout.
Arrival arrive_at_kept(Emission& e, AttendBuffers& buffers, BufferId dout) {
  const DType dtype = e.problem.dtype;
  const DType acc = accumulator(dtype);
  buffers.q = head_layout(e, Quantity::kQ, dtype, true);
  buffers.k = head_layout(e, Quantity::kK, dtype, true);
  buffers.v = head_layout(e, Quantity::kV, dtype, true);
  buffers.o = head_layout(e, Quantity::kO, e.whole_o ? dtype : acc, true);
  buffers.lse = head_layout(e, Quantity::kLse, acc, true);
  buffers.dout = head_layout(e, Quantity::kDout, dtype, false);
  return send_to_heads(e, {{dout, buffers.dout}});
}

/// After any other forward: everything that backward reads moves to head layout in one exchange.
Arrival arrive(Emission& e, AttendBuffers& buffers, BufferId dout, BufferId delta) {
  const DType dtype = e.problem.dtype;
  const DType acc = accumulator(dtype);
  buffers.q = head_layout(e, Quantity::kQ, dtype, false);
  buffers.k = head_layout(e, Quantity::kK, dtype, false);
  buffers.v = head_layout(e, Quantity::kV, dtype, false);
  buffers.lse = head_layout(e, Quantity::kLse, acc, false);
  buffers.dout = head_layout(e, Quantity::kDout, dtype, false);
  buffers.delta = head_layout(e, Quantity::kDelta, acc, false);
  return send_to_heads(e, {{e.operand(Quantity::kQ, dtype), buffers.q},
                           {e.operand(Quantity::kK, dtype), buffers.k},
                           {e.operand(Quantity::kV, dtype), buffers.v},
                           {e.operand(Quantity::kLse, acc), buffers.lse},
                           {dout, buffers.dout},
                           {delta, buffers.delta}});
}

/// delta in head layout, where the tiles cannot start from the O that forward kept.
void settle_delta(Emission& e, AttendBuffers& buffers) {
  if (buffers.o == kNone || e.whole_gradients) return;
  buffers.delta = head_layout(e, Quantity::kDelta, accumulator(e.problem.dtype), false);
  e.builder.delta(buffers.o, buffers.dout, buffers.delta,
                  copy_rows(e.q, buffers.o, buffers.delta, e.share.q_heads()));
  buffers.o = kNone;
}

/// On all of the group's rows for a share of the heads, slice by slice.
int64_t backward_by_heads(Emission& e, const Operands& x) {
  const DType dtype = e.problem.dtype;
  const bool kept = keeps_heads(e);
  const BufferId delta = kept ? kNone : own_delta(e, own_o(e), x.dout);
  AttendBuffers buffers;
  int64_t key_rows = 0;
  const auto come = [&] {
    return kept ? arrive_at_kept(e, buffers, x.dout) : arrive(e, buffers, x.dout, delta);
  };
  const auto leave = [&] {
    settle_delta(e, buffers);
    const bool final = e.whole_gradients;
    const auto gradient = [&](Quantity quantity) {
      return final ? head_layout(e, quantity, dtype, false) : accumulator_buffer(e, quantity);
    };
    buffers.dq = gradient(Quantity::kDq);
    buffers.dk = gradient(Quantity::kDk);
    buffers.dv = gradient(Quantity::kDv);
    key_rows = compute(e, buffers);
    return send_from_heads(e, {{buffers.dq, x.dq}, {buffers.dk, x.dk}, {buffers.dv, x.dv}});
  };
  in_slices(e, buffers, come, leave);
  return key_rows;
}

}  // namespace

int64_t emit_backward(Emission& e) {
  const DType dtype = e.problem.dtype;
  const Operands x{.dout = e.operand(Quantity::kDout, dtype),
                   .dq = e.operand(Quantity::kDq, dtype),
                   .dk = e.operand(Quantity::kDk, dtype),
                   .dv = e.operand(Quantity::kDv, dtype)};
  const int64_t key_rows =
      e.arrangement.ways == 1 ? backward_in_place(e, x) : backward_by_heads(e, x);
  e.builder.fill(padding(e.setting.partition.q(e.rank), {x.dq}));
  e.builder.fill(padding(e.setting.partition.k(e.rank), {x.dk, x.dv}));
  return key_rows;
}

}  // namespace longspan
