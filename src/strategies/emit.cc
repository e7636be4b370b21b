#include "strategies/emit.h"

#include <fmt/format.h>

#include <utility>

#include "strategies/layouts.h"

namespace longspan {
namespace {

TileProblem tile_problem(Emission& e, int64_t key_rows) {
  const Problem& p = e.problem;
  Features features = features_of(p, e.direction);
  features.whole = e.direction == Direction::kForward ? e.whole_o : e.whole_gradients;
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
          .score_bytes = e.direction == Direction::kBackward ? e.setting.score_bytes : 0,
          .features = std::move(features)};
}

/// O and LSE of the rows that attend works on: filled where tiles do not write them.
void start_results(Emission& e, const AttendBuffers& buffers) {
  if (!e.whole_o) {
    e.builder.fill({whole(e, buffers.o), whole(e, buffers.lse)});
    return;
  }
  std::vector<Fill> fills = unattended(e, buffers.o);
  const std::vector<Fill> more = unattended(e, buffers.lse);
  fills.insert(fills.end(), more.begin(), more.end());
  e.builder.fill(std::move(fills));
}

int64_t compute(Emission& e, const AttendBuffers& buffers) {
  start_results(e, buffers);
  const int64_t key_rows = attend_all(e, buffers);
  if (e.problem.sink != Sink::kNone && e.share.q_heads() > 0) {
    e.builder.sink(buffers.o, buffers.lse, attended_rows(e, buffers.lse));
  }
  return key_rows;
}

/// Tensors of the call.
struct Operands {
  BufferId q, k, v, o, lse;
};

/// On this rank's own rows.
int64_t forward_in_place(Emission& e, const Operands& x) {
  AttendBuffers buffers{.q = x.q, .k = x.k, .v = x.v, .o = x.o, .lse = x.lse};
  if (!e.whole_o) {
    buffers.o = keeps_exact_o(e.setting) ? exact_o(e) : accumulator_buffer(e, Quantity::kO);
    buffers.lse = accumulator_buffer(e, Quantity::kLse);
  }
  buffers.max_logit = max_logit_buffer(e);
  const int64_t key_rows = compute(e, buffers);
  reduce_max_logit(e, buffers.max_logit);
  if (e.whole_o) return key_rows;
  std::vector<Copy> copies = copy_rows(e.own_q, buffers.o, x.o, e.problem.heads_q);
  const std::vector<Copy> more = copy_rows(e.own_q, buffers.lse, x.lse, e.problem.heads_q);
  copies.insert(copies.end(), more.begin(), more.end());
  e.builder.copy(StepKind::kUnpack, std::move(copies));
  return key_rows;
}

/// On all of the group's rows for a share of the heads, slice by slice.
int64_t forward_by_heads(Emission& e, const Operands& x) {
  const DType dtype = e.problem.dtype;
  const DType acc = accumulator(dtype);
  const bool saved = keeps_heads(e);
  // O travels unrounded to be kept.
  const bool exact = keeps_exact_o(e.setting) && !saved;
  const BufferId o = exact ? exact_o(e) : x.o;
  AttendBuffers buffers{.max_logit = max_logit_buffer(e)};
  int64_t key_rows = 0;
  const auto arrive = [&] {
    buffers.q = head_layout(e, Quantity::kQ, dtype, saved);
    buffers.k = head_layout(e, Quantity::kK, dtype, saved);
    buffers.v = head_layout(e, Quantity::kV, dtype, saved);
    buffers.o = head_layout(e, Quantity::kO, e.whole_o ? dtype : acc, saved);
    buffers.lse = head_layout(e, Quantity::kLse, acc, saved);
    return send_to_heads(e, {{x.q, buffers.q}, {x.k, buffers.k}, {x.v, buffers.v}});
  };
  const auto leave = [&] {
    key_rows = compute(e, buffers);
    return send_from_heads(e, {{buffers.o, o}, {buffers.lse, x.lse}});
  };
  in_slices(e, buffers, arrive, leave);
  reduce_max_logit(e, buffers.max_logit);
  if (exact) e.builder.copy(StepKind::kUnpack, copy_rows(e.own_q, o, x.o, e.problem.heads_q));
  return key_rows;
}

int64_t emit_forward(Emission& e) {
  const DType dtype = e.problem.dtype;
  const Operands x{.q = e.operand(Quantity::kQ, dtype),
                   .k = e.operand(Quantity::kK, dtype),
                   .v = e.operand(Quantity::kV, dtype),
                   .o = e.operand(Quantity::kO, dtype),
                   .lse = e.operand(Quantity::kLse, accumulator(dtype))};
  const int64_t key_rows =
      e.arrangement.ways == 1 ? forward_in_place(e, x) : forward_by_heads(e, x);
  e.builder.fill(padding(e.setting.partition.q(e.rank), {x.o, x.lse}));
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

std::optional<Decline> needs_known_lengths(const Problem& problem) {
  if (!problem.device_lengths || problem.align == Align::kTopLeft) return std::nullopt;
  return Decline{DeclineCode::kDeviceLengths,
                 "align=bottom_right with device_lengths: the diagonal starts at lengths that only "
                 "the device knows; use align=top_left, or promise uniform_lengths"};
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
