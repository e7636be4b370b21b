#include "strategies/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace longspan {
namespace {

/// Rows of a shard that are no tokens.
std::vector<Fill> padding(const Shard& shard, std::initializer_list<BufferId> buffers) {
  std::vector<Fill> fills;
  for (const Run& run : shard.runs) {
    for (const BufferId buffer : buffers) {
      fills.push_back({buffer, run.row + run.valid, run.tokens.size() - run.valid});
    }
  }
  return fills;
}

Fill whole(const Emission& e, BufferId buffer) {
  return {buffer, 0, e.builder.buffer(buffer).rows};
}

TileProblem tile_problem(const Emission& e, int64_t key_rows) {
  const Problem& p = e.problem;
  return {.direction = e.direction,
          .dtype = p.dtype,
          .heads_q = e.share.q_heads(),
          .heads_kv = e.share.kv_heads(),
          .group = p.group(),
          .group_offset = e.share.q_begin - e.share.kv_begin * p.group(),
          .dim_qk = p.dim_qk,
          .dim_v = p.dim_v,
          .capacity_q = e.q.rows,
          .capacity_k = key_rows,
          .features = features_of(p, e.direction)};
}

/// Forward leaves q, k, v, O and LSE in head layout where backward can start from them.
bool keeps_heads(const Emission& e) {
  return e.arrangement.ways > 1 && e.setting.forward == e.setting.backward;
}

/// delta = rowsum(dout * O) of a 16-bit O is off by the rounding of O. Where few keys have weight,
/// dq and dk are small differences and that error would be most of them, so forward keeps O as it
/// was accumulated; O of other types is exact as returned.
bool keeps_exact_o(const Emission& e) {
  return size_of(e.problem.dtype) == 2 && e.setting.backward != kNoStrategy;
}

/// A buffer in head layout, kept from forward to backward where `saved`.
BufferId head_layout(Emission& e, Quantity quantity, DType dtype, bool saved) {
  Buffer buffer = e.head_buffer(quantity, dtype, std::string(name(quantity)) + "_heads");
  if (!saved) return e.workspace(std::move(buffer));
  buffer.space = Space::kSaved;
  return e.builder.add(std::move(buffer));
}

/// O in accumulator type at the rows of this rank's tensors, kept from forward to backward.
BufferId exact_o(Emission& e) {
  const Shard& shard = e.setting.partition.q(e.rank);
  return e.builder.add({.space = Space::kSaved,
                        .quantity = Quantity::kO,
                        .name = "o_exact",
                        .dtype = accumulator(e.problem.dtype),
                        .rows = shard.rows,
                        .heads = e.problem.heads_q,
                        .dim = e.problem.dim_v,
                        .runs = e.own_q.runs});
}

BufferId accumulator_buffer(Emission& e, Quantity quantity) {
  return e.workspace(
      e.head_buffer(quantity, accumulator(e.problem.dtype), std::string(name(quantity)) + "_sum"));
}

/// Rows of tokens that attend steps work on.
std::vector<Fill> attended_rows(const Emission& e, BufferId buffer) {
  std::vector<Fill> rows;
  for (const Run& run : e.q.runs) rows.push_back({buffer, run.row, run.valid});
  return rows;
}

/// Brings the accumulated O and LSE to the rank's tensors.
void return_results(Emission& e, const AttendBuffers& from, BufferId o, BufferId lse) {
  const int64_t heads = e.problem.heads_q;
  if (e.arrangement.ways == 1) {
    std::vector<Copy> copies = copy_rows(e.own_q, from.o, o, heads);
    const std::vector<Copy> statistics = copy_rows(e.own_q, from.lse, lse, heads);
    copies.insert(copies.end(), statistics.begin(), statistics.end());
    e.builder.copy(StepKind::kUnpack, std::move(copies));
  } else if (keeps_exact_o(e) && !keeps_heads(e)) {  // O travels unrounded to be kept
    const BufferId exact = exact_o(e);
    exchange_from_heads(e, {{from.o, exact}, {from.lse, lse}});
    e.builder.copy(StepKind::kUnpack, copy_rows(e.own_q, exact, o, heads));
  } else {
    exchange_from_heads(e, {{from.o, o}, {from.lse, lse}});
  }
  e.builder.fill(padding(e.setting.partition.q(e.rank), {o, lse}));
}

int64_t emit_forward(Emission& e) {
  const DType dtype = e.problem.dtype;
  const DType acc = accumulator(dtype);
  const BufferId q = e.operand(Quantity::kQ, dtype);
  const BufferId k = e.operand(Quantity::kK, dtype);
  const BufferId v = e.operand(Quantity::kV, dtype);
  const BufferId o = e.operand(Quantity::kO, dtype);
  const BufferId lse = e.operand(Quantity::kLse, acc);
  AttendBuffers buffers{.q = q, .k = k, .v = v};
  const bool saved = keeps_heads(e);
  if (e.arrangement.ways > 1) {
    buffers.q = head_layout(e, Quantity::kQ, dtype, saved);
    buffers.k = head_layout(e, Quantity::kK, dtype, saved);
    buffers.v = head_layout(e, Quantity::kV, dtype, saved);
    exchange_to_heads(e, {{q, buffers.q}, {k, buffers.k}, {v, buffers.v}});
    buffers.o = head_layout(e, Quantity::kO, acc, saved);
    buffers.lse = head_layout(e, Quantity::kLse, acc, saved);
  } else {
    buffers.o = keeps_exact_o(e) ? exact_o(e) : accumulator_buffer(e, Quantity::kO);
    buffers.lse = accumulator_buffer(e, Quantity::kLse);
  }
  buffers.max_logit = max_logit_buffer(e);
  e.builder.fill({whole(e, buffers.o), whole(e, buffers.lse)});
  const int64_t key_rows = attend_all(e, buffers);
  if (e.problem.sink != Sink::kNone && e.share.q_heads() > 0) {
    e.builder.sink(buffers.o, buffers.lse, attended_rows(e, buffers.lse));
  }
  reduce_max_logit(e, buffers.max_logit);
  return_results(e, buffers, o, lse);
  return key_rows;
}

/// delta of this rank's own rows, from what forward returned or kept.
BufferId own_delta(Emission& e, BufferId dout) {
  const DType dtype = e.problem.dtype;
  const BufferId o = keeps_exact_o(e) ? exact_o(e) : e.operand(Quantity::kO, dtype);
  const BufferId delta = e.workspace({.quantity = Quantity::kDelta,
                                      .name = "delta",
                                      .dtype = accumulator(dtype),
                                      .rows = e.setting.partition.q(e.rank).rows,
                                      .heads = e.problem.heads_q,
                                      .dim = 1,
                                      .runs = e.own_q.runs});
  e.builder.delta(o, dout, delta, copy_rows(e.own_q, o, delta, e.problem.heads_q));
  return delta;
}

/// Backward after the same strategy's forward: only dout has to change its layout.
AttendBuffers kept_heads(Emission& e, BufferId dout) {
  const DType dtype = e.problem.dtype;
  const DType acc = accumulator(dtype);
  AttendBuffers buffers{.q = head_layout(e, Quantity::kQ, dtype, true),
                        .k = head_layout(e, Quantity::kK, dtype, true),
                        .v = head_layout(e, Quantity::kV, dtype, true)};
  const BufferId o = head_layout(e, Quantity::kO, acc, true);
  buffers.lse = head_layout(e, Quantity::kLse, acc, true);
  buffers.dout = head_layout(e, Quantity::kDout, dtype, false);
  buffers.delta = head_layout(e, Quantity::kDelta, acc, false);
  exchange_to_heads(e, {{dout, buffers.dout}});
  e.builder.delta(o, buffers.dout, buffers.delta,
                  copy_rows(e.q, o, buffers.delta, e.share.q_heads()));
  return buffers;
}

/// Backward after any other forward: everything it reads moves to head layout in one exchange.
AttendBuffers exchanged_heads(Emission& e, BufferId dout) {
  const DType dtype = e.problem.dtype;
  const DType acc = accumulator(dtype);
  const BufferId delta = own_delta(e, dout);
  const AttendBuffers buffers{.q = head_layout(e, Quantity::kQ, dtype, false),
                              .k = head_layout(e, Quantity::kK, dtype, false),
                              .v = head_layout(e, Quantity::kV, dtype, false),
                              .lse = head_layout(e, Quantity::kLse, acc, false),
                              .dout = head_layout(e, Quantity::kDout, dtype, false),
                              .delta = head_layout(e, Quantity::kDelta, acc, false)};
  exchange_to_heads(e, {{e.operand(Quantity::kQ, dtype), buffers.q},
                        {e.operand(Quantity::kK, dtype), buffers.k},
                        {e.operand(Quantity::kV, dtype), buffers.v},
                        {e.operand(Quantity::kLse, acc), buffers.lse},
                        {dout, buffers.dout},
                        {delta, buffers.delta}});
  return buffers;
}

/// Backward on this rank's own tensors.
AttendBuffers own_tensors(Emission& e, BufferId dout) {
  const DType dtype = e.problem.dtype;
  const BufferId delta = own_delta(e, dout);
  return {.q = e.operand(Quantity::kQ, dtype),
          .k = e.operand(Quantity::kK, dtype),
          .v = e.operand(Quantity::kV, dtype),
          .lse = e.operand(Quantity::kLse, accumulator(dtype)),
          .dout = dout,
          .delta = delta};
}

int64_t emit_backward(Emission& e) {
  const DType dtype = e.problem.dtype;
  const BufferId dout = e.operand(Quantity::kDout, dtype);
  const bool heads = e.arrangement.ways > 1;
  AttendBuffers buffers = keeps_heads(e) ? kept_heads(e, dout)
                          : heads        ? exchanged_heads(e, dout)
                                         : own_tensors(e, dout);
  if (e.problem.sink == Sink::kLearnable && e.share.q_heads() > 0) {
    e.builder.sink_gradient(buffers.lse, buffers.delta, attended_rows(e, buffers.lse));
  }
  buffers.dq = accumulator_buffer(e, Quantity::kDq);
  buffers.dk = accumulator_buffer(e, Quantity::kDk);
  buffers.dv = accumulator_buffer(e, Quantity::kDv);
  e.builder.fill({whole(e, buffers.dq), whole(e, buffers.dk), whole(e, buffers.dv)});
  const int64_t key_rows = attend_all(e, buffers);
  const BufferId dq = e.operand(Quantity::kDq, dtype);
  const BufferId dk = e.operand(Quantity::kDk, dtype);
  const BufferId dv = e.operand(Quantity::kDv, dtype);
  if (heads) {
    exchange_from_heads(e, {{buffers.dq, dq}, {buffers.dk, dk}, {buffers.dv, dv}});
  } else {
    std::vector<Copy> copies = copy_rows(e.own_q, buffers.dq, dq, e.problem.heads_q);
    for (const auto& [from, to] : {Move{buffers.dk, dk}, Move{buffers.dv, dv}}) {
      const std::vector<Copy> more = copy_rows(e.own_k, from, to, e.problem.heads_kv);
      copies.insert(copies.end(), more.begin(), more.end());
    }
    e.builder.copy(StepKind::kUnpack, std::move(copies));
  }
  e.builder.fill(padding(e.setting.partition.q(e.rank), {dq}));
  e.builder.fill(padding(e.setting.partition.k(e.rank), {dk, dv}));
  return key_rows;
}

}  // namespace

std::optional<Decline> varies_with_ranks(const Setting& setting, std::string_view strategy,
                                         int groups) {
  if (!setting.problem.invariant || groups == 1) return std::nullopt;
  return Decline{DeclineCode::kInvariant,
                 fmt::format("{} adds up partial results of {} ranks or nodes, so that bits depend "
                             "on their number; use all_to_all, or head_parallel for backward",
                             strategy, groups)};
}

Schedule emit(const Setting& setting, Direction direction, int rank, std::string_view strategy,
              Arrangement arrangement) {
  Emission emission(setting, direction, rank, strategy, arrangement);
  const int64_t key_rows =
      direction == Direction::kForward ? emit_forward(emission) : emit_backward(emission);
  TileProblem tiles = tile_problem(emission, key_rows);
  return std::move(emission.builder).finish(std::move(tiles));
}

}  // namespace longspan
