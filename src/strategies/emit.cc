#include "strategies/emit.h"

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

Fill whole(const Emission& e, BufferId buffer) { return {buffer, 0, e.builder.buffer(buffer).rows}; }

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
          .not_offered = p.not_offered};
}

/// Forward leaves q, k, v and LSE in head layout where backward can start from them.
bool keeps_heads(const Emission& e) {
  return e.arrangement.ways > 1 && e.setting.forward == e.setting.backward;
}

BufferId head_layout(Emission& e, Quantity quantity, DType dtype, bool saved) {
  Buffer buffer = e.head_buffer(quantity, dtype, std::string(name(quantity)) + "_heads");
  if (!saved) return e.workspace(std::move(buffer));
  buffer.space = Space::kSaved;
  return e.builder.add(std::move(buffer));
}

BufferId accumulator_buffer(Emission& e, Quantity quantity) {
  return e.workspace(e.head_buffer(quantity, accumulator(e.problem.dtype),
                                   std::string(name(quantity)) + "_sum"));
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
  const bool heads = e.arrangement.ways > 1;
  if (heads) {
    buffers.q = head_layout(e, Quantity::kQ, dtype, saved);
    buffers.k = head_layout(e, Quantity::kK, dtype, saved);
    buffers.v = head_layout(e, Quantity::kV, dtype, saved);
    exchange_to_heads(e, {{q, buffers.q}, {k, buffers.k}, {v, buffers.v}});
  }
  buffers.o = accumulator_buffer(e, Quantity::kO);
  buffers.lse = saved ? head_layout(e, Quantity::kLse, acc, true)
                      : accumulator_buffer(e, Quantity::kLse);
  e.builder.fill({whole(e, buffers.o), whole(e, buffers.lse)});
  const int64_t key_rows = attend_all(e, buffers);
  if (heads) {
    exchange_from_heads(e, {{buffers.o, o}, {buffers.lse, lse}});
  } else {
    std::vector<Copy> copies = copy_rows(e.own_q, buffers.o, o, e.problem.heads_q);
    const std::vector<Copy> statistics = copy_rows(e.own_q, buffers.lse, lse, e.problem.heads_q);
    copies.insert(copies.end(), statistics.begin(), statistics.end());
    e.builder.copy(StepKind::kUnpack, std::move(copies));
  }
  e.builder.fill(padding(e.setting.partition.q(e.rank), {o, lse}));
  return key_rows;
}

/// What backward reads in head layout, through one exchange.
AttendBuffers backward_heads(Emission& e, BufferId dout, BufferId delta) {
  const DType dtype = e.problem.dtype;
  const DType acc = accumulator(dtype);
  const bool saved = keeps_heads(e);
  AttendBuffers buffers;
  buffers.q = head_layout(e, Quantity::kQ, dtype, saved);
  buffers.k = head_layout(e, Quantity::kK, dtype, saved);
  buffers.v = head_layout(e, Quantity::kV, dtype, saved);
  buffers.lse = head_layout(e, Quantity::kLse, acc, saved);
  buffers.dout = head_layout(e, Quantity::kDout, dtype, false);
  buffers.delta = head_layout(e, Quantity::kDelta, acc, false);
  std::vector<Move> moves;
  if (!saved) {
    moves = {{e.operand(Quantity::kQ, dtype), buffers.q},
             {e.operand(Quantity::kK, dtype), buffers.k},
             {e.operand(Quantity::kV, dtype), buffers.v},
             {e.operand(Quantity::kLse, acc), buffers.lse}};
  }
  moves.push_back({dout, buffers.dout});
  moves.push_back({delta, buffers.delta});
  exchange_to_heads(e, moves);
  return buffers;
}

int64_t emit_backward(Emission& e) {
  const DType dtype = e.problem.dtype;
  const DType acc = accumulator(dtype);
  const BufferId o = e.operand(Quantity::kO, dtype);
  const BufferId dout = e.operand(Quantity::kDout, dtype);
  const Shard& shard = e.setting.partition.q(e.rank);
  const BufferId delta = e.workspace({.quantity = Quantity::kDelta,
                                      .name = "delta",
                                      .dtype = acc,
                                      .rows = shard.rows,
                                      .heads = e.problem.heads_q,
                                      .dim = 1,
                                      .runs = e.own_q.runs});
  e.builder.delta(o, dout, delta, copy_rows(e.own_q, o, delta, e.problem.heads_q));
  const bool heads = e.arrangement.ways > 1;
  AttendBuffers buffers =
      heads ? backward_heads(e, dout, delta)
            : AttendBuffers{.q = e.operand(Quantity::kQ, dtype),
                            .k = e.operand(Quantity::kK, dtype),
                            .v = e.operand(Quantity::kV, dtype),
                            .lse = e.operand(Quantity::kLse, acc),
                            .dout = dout,
                            .delta = delta};
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
  e.builder.fill(padding(shard, {dq}));
  e.builder.fill(padding(e.setting.partition.k(e.rank), {dk, dv}));
  return key_rows;
}

}  // namespace

bool is_key_side(Quantity quantity) {
  return quantity == Quantity::kK || quantity == Quantity::kV || quantity == Quantity::kDk ||
         quantity == Quantity::kDv;
}

Emission::Emission(const Setting& s, Direction d, int r, std::string_view strategy, Arrangement a)
    : setting(s),
      problem(s.problem),
      direction(d),
      rank(r),
      arrangement(a),
      group(r / a.ways),
      member(r % a.ways),
      share(head_share(s.problem, a.ways, r % a.ways)),
      own_q(valid_rows(s.partition.q(r))),
      own_k(valid_rows(s.partition.k(r))),
      q(group_rows(SideOf::kQuery, group)),
      k(group_rows(SideOf::kKey, group)),
      builder(d, strategy, r, a.ways * a.rings),
      send(builder.region()),
      recv(builder.region()) {}

Rows Emission::group_rows(SideOf side, int of_group) const {
  if (arrangement.ways > 1) {
    return merged_rows(setting.partition, side, of_group * arrangement.ways, arrangement.ways);
  }
  const Partition& partition = setting.partition;
  return valid_rows(side == SideOf::kQuery ? partition.q(of_group) : partition.k(of_group));
}

int64_t Emission::dim_of(Quantity quantity) const {
  switch (quantity) {
    case Quantity::kLse:
    case Quantity::kDelta: return 1;
    case Quantity::kV:
    case Quantity::kO:
    case Quantity::kDout:
    case Quantity::kDv: return problem.dim_v;
    default: return problem.dim_qk;
  }
}

Buffer Emission::head_buffer(Quantity quantity, DType dtype, std::string name) const {
  const bool keys = is_key_side(quantity);
  const Rows& rows = keys ? k : q;
  return {.quantity = quantity,
          .name = std::move(name),
          .dtype = dtype,
          .rows = rows.rows,
          .heads = keys ? share.kv_heads() : share.q_heads(),
          .dim = dim_of(quantity),
          .head_begin = keys ? share.kv_begin : share.q_begin,
          .runs = rows.runs};
}

BufferId Emission::operand(Quantity quantity, DType dtype) {
  const bool keys = is_key_side(quantity);
  const Shard& shard = keys ? setting.partition.k(rank) : setting.partition.q(rank);
  return builder.add({.space = Space::kOperand,
                      .quantity = quantity,
                      .name = std::string(name(quantity)),
                      .dtype = dtype,
                      .rows = shard.rows,
                      .heads = keys ? problem.heads_kv : problem.heads_q,
                      .dim = dim_of(quantity),
                      .runs = shard.runs});
}

BufferId Emission::workspace(Buffer buffer) {
  return builder.place(builder.region(), std::move(buffer));
}

std::vector<Copy> copy_rows(const Rows& rows, BufferId from, BufferId to, int64_t heads) {
  std::vector<Copy> copies;
  copies.reserve(rows.runs.size());
  for (const Run& run : rows.runs) {
    copies.push_back({.src = from,
                      .dst = to,
                      .src_row = run.row,
                      .dst_row = run.row,
                      .rows = run.valid,
                      .heads = heads});
  }
  return copies;
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
