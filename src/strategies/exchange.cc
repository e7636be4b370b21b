// Sequence layout to head layout and back, inside a group of ranks.
#include <fmt/format.h>

#include <utility>

#include "strategies/emit.h"

namespace longspan {
namespace {

/// Heads [begin, end) of a quantity that a member computes.
std::pair<int64_t, int64_t> heads_of(const HeadShare& share, Quantity quantity) {
  return is_key_side(quantity) ? std::pair{share.kv_begin, share.kv_end}
                               : std::pair{share.q_begin, share.q_end};
}

const Rows& own_rows(const Emission& e, Quantity quantity) {
  return is_key_side(quantity) ? e.own_k : e.own_q;
}

const Rows& head_rows(const Emission& e, Quantity quantity) {
  return is_key_side(quantity) ? e.k : e.q;
}

Rows rows_of_rank(const Emission& e, Quantity quantity, int rank) {
  const Partition& partition = e.setting.partition;
  return valid_rows(is_key_side(quantity) ? partition.k(rank) : partition.q(rank));
}

HeadShare share_of(const Emission& e, int member) {
  return head_share(e.problem, e.arrangement.ways, member);
}

/// Rows of one rank between its own tensor (or a message) and head layout.
std::vector<Copy> regroup(const Rows& sequence_rows, const Rows& head_layout, Copy prototype,
                          bool to_heads) {
  std::vector<Copy> copies;
  for (const Run& run : sequence_rows.runs) {
    const Place place = locate(head_layout, run);
    Copy copy = prototype;
    copy.rows = run.valid;
    (to_heads ? copy.src_row : copy.dst_row) = run.row;
    (to_heads ? copy.dst_row : copy.src_row) = place.row;
    (to_heads ? copy.dst_step : copy.src_step) = place.step;
    copies.push_back(copy);
  }
  return copies;
}

void append(std::vector<Copy>& to, const std::vector<Copy>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// A message field: `rows` of one rank for heads [begin, end). Null where it would be empty.
BufferId place_field(Emission& e, RegionId region, Quantity quantity, DType dtype,
                     const Rows& compact, std::pair<int64_t, int64_t> heads,
                     std::string_view direction, int peer) {
  const int64_t count = heads.second - heads.first;
  if (compact.rows == 0 || count == 0) return kNone;
  return e.builder.place(region, {.quantity = quantity,
                                  .name = fmt::format("{}.{}{}", name(quantity), direction, peer),
                                  .dtype = dtype,
                                  .rows = compact.rows,
                                  .heads = count,
                                  .dim = e.dim_of(quantity),
                                  .head_begin = heads.first,
                                  .runs = compact.runs});
}

/// dk and dv of shared key heads are partial: they travel in accumulator type and are added at
/// home.
bool is_partial(const Emission& e, Quantity quantity) {
  return is_key_side(quantity) && shares_kv_heads(e.problem, e.arrangement.ways);
}

/// One exchange as it is put together, member by member.
struct Exchange {
  std::vector<Copy> pack, own, unpack;
  std::vector<Message> messages;

  void add(int peer, uint32_t tag, std::vector<BufferId> sent, std::vector<BufferId> received) {
    messages.push_back(Builder::message(TransferKind::kSend, peer, tag, std::move(sent)));
    messages.push_back(Builder::message(TransferKind::kRecv, peer, tag, std::move(received)));
  }
  void emit(Builder& builder) && {
    builder.copy(StepKind::kPack, std::move(pack));
    builder.transfer(StepKind::kAllToAll, std::move(messages));
    builder.copy(StepKind::kUnpack, std::move(own));
    builder.copy(StepKind::kUnpack, std::move(unpack));
  }
};

/// dk or dv of shared key heads: every member's part is added in order of members.
void add_up(Emission& e, const Move& move, const std::vector<BufferId>& received) {
  const Quantity quantity = e.builder.buffer(move.to).quantity;
  const Rows compact = compacted(e.own_k);
  const BufferId sum = e.workspace({.quantity = quantity,
                                    .name = fmt::format("{}_owner", name(quantity)),
                                    .dtype = accumulator(e.problem.dtype),
                                    .rows = compact.rows,
                                    .heads = e.problem.heads_kv,
                                    .dim = e.dim_of(quantity),
                                    .runs = compact.runs});
  std::vector<Copy> additions;
  for (int m = 0; m < e.arrangement.ways; ++m) {
    const HeadShare share = share_of(e, m);
    const Copy prototype{.src = m == e.member ? move.from : received[static_cast<size_t>(m)],
                         .dst = sum,
                         .dst_head = share.kv_begin,
                         .heads = share.kv_heads()};
    if (prototype.src == kNone || prototype.heads == 0) continue;
    append(additions, regroup(compact, m == e.member ? e.k : compact, prototype, false));
  }
  e.builder.fill({{sum, 0, compact.rows}});
  e.builder.copy(StepKind::kAccumulate, std::move(additions));
  std::vector<Copy> home;
  for (size_t i = 0; i < compact.runs.size(); ++i) {
    home.push_back({.src = sum,
                    .dst = move.to,
                    .src_row = compact.runs[i].row,
                    .dst_row = e.own_k.runs[i].row,
                    .rows = compact.runs[i].valid,
                    .heads = e.problem.heads_kv});
  }
  e.builder.copy(StepKind::kUnpack, std::move(home));
}

/// What this rank gives member m and gets from it.
void to_heads_of(Emission& e, const std::vector<Move>& moves, int m, Exchange& x) {
  const int peer = e.member_rank(m);
  std::vector<BufferId> sent, received;
  for (const auto& [from, to] : moves) {
    const Quantity quantity = e.builder.buffer(from).quantity;
    const DType dtype = e.builder.buffer(from).dtype;
    const auto theirs = heads_of(share_of(e, m), quantity);
    const auto mine = heads_of(e.share, quantity);
    const Rows& rows = own_rows(e, quantity);
    Copy copy{.src = from, .src_head = theirs.first, .heads = theirs.second - theirs.first};
    if (m == e.member) {
      copy.dst = to;
      append(x.own, regroup(rows, head_rows(e, quantity), copy, true));
      continue;
    }
    const Rows compact = compacted(rows);
    copy.dst = place_field(e, e.send, quantity, dtype, compact, theirs, "to", peer);
    if (copy.dst != kNone) {
      append(x.pack, regroup(rows, compact, copy, true));
      sent.push_back(copy.dst);
    }
    const Rows incoming = compacted(rows_of_rank(e, quantity, peer));
    const BufferId in = place_field(e, e.recv, quantity, dtype, incoming, mine, "from", peer);
    if (in == kNone) continue;
    received.push_back(in);
    append(x.unpack, regroup(incoming, head_rows(e, quantity),
                             {.src = in, .dst = to, .heads = mine.second - mine.first}, true));
  }
  if (m != e.member) x.add(peer, kToHeads, std::move(sent), std::move(received));
}

/// What this rank computed of member m's tokens, and member m of this rank's. Returns the buffers
/// received, move by move.
std::vector<BufferId> from_heads_of(Emission& e, const std::vector<Move>& moves, int m,
                                    Exchange& x) {
  const int peer = e.member_rank(m);
  std::vector<BufferId> sent, received, by_move(moves.size(), kNone);
  for (size_t i = 0; i < moves.size(); ++i) {
    const auto& [from, to] = moves[i];
    const Quantity quantity = e.builder.buffer(to).quantity;
    const bool partial = is_partial(e, quantity);
    const DType wire = partial ? accumulator(e.problem.dtype) : e.builder.buffer(to).dtype;
    const auto theirs = heads_of(share_of(e, m), quantity);
    const auto mine = heads_of(e.share, quantity);
    const Rows& rows = own_rows(e, quantity);
    Copy home{.dst = to, .dst_head = theirs.first, .heads = theirs.second - theirs.first};
    if (m == e.member) {
      home.src = from;
      if (!partial) append(x.own, regroup(rows, head_rows(e, quantity), home, false));
      continue;
    }
    const Rows outgoing = compacted(rows_of_rank(e, quantity, peer));
    const BufferId out = place_field(e, e.send, quantity, wire, outgoing, mine, "home", peer);
    if (out != kNone) {
      sent.push_back(out);
      append(x.pack, regroup(outgoing, head_rows(e, quantity),
                             {.src = from, .dst = out, .heads = mine.second - mine.first}, false));
    }
    const Rows compact = compacted(rows);
    home.src = place_field(e, e.recv, quantity, wire, compact, theirs, "result", peer);
    if (home.src == kNone) continue;
    received.push_back(home.src);
    by_move[i] = home.src;
    if (partial) continue;
    append(x.unpack, regroup(rows, compact, home, false));
  }
  if (m != e.member) x.add(peer, kFromHeads, std::move(sent), std::move(received));
  return by_move;
}

}  // namespace

void exchange_to_heads(Emission& e, const std::vector<Move>& moves) {
  e.builder.rewind(e.send);
  e.builder.rewind(e.recv);
  Exchange exchange;
  for (int m = 0; m < e.arrangement.ways; ++m) to_heads_of(e, moves, m, exchange);
  std::move(exchange).emit(e.builder);
}

void exchange_from_heads(Emission& e, const std::vector<Move>& moves) {
  e.builder.rewind(e.send);
  e.builder.rewind(e.recv);
  Exchange exchange;
  std::vector<std::vector<BufferId>> received;  // by member, then by move
  for (int m = 0; m < e.arrangement.ways; ++m) {
    received.push_back(from_heads_of(e, moves, m, exchange));
  }
  std::move(exchange).emit(e.builder);
  for (size_t i = 0; i < moves.size(); ++i) {
    if (!is_partial(e, e.builder.buffer(moves[i].to).quantity)) continue;
    std::vector<BufferId> of_move;
    for (const std::vector<BufferId>& member : received) of_move.push_back(member[i]);
    add_up(e, moves[i], of_move);
  }
}

}  // namespace longspan
