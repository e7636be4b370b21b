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

/// The type in which a result travels home.
DType wire_type(const Emission& e, const Buffer& target) {
  const bool shared = is_key_side(target.quantity) &&
                      shares_kv_heads(e.problem, e.arrangement.ways);
  return shared ? accumulator(e.problem.dtype) : target.dtype;
}

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

}  // namespace

void exchange_to_heads(Emission& e, const std::vector<Move>& moves) {
  e.builder.rewind(e.send);
  e.builder.rewind(e.recv);
  std::vector<Copy> pack, own, unpack;
  std::vector<Message> messages;
  for (int m = 0; m < e.arrangement.ways; ++m) {
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
        append(own, regroup(rows, head_rows(e, quantity), copy, true));
        continue;
      }
      const Rows compact = compacted(rows);
      const BufferId out = place_field(e, e.send, quantity, dtype, compact, theirs, "to", peer);
      if (out != kNone) {
        copy.dst = out;
        append(pack, regroup(rows, compact, copy, true));
        sent.push_back(out);
      }
      const Rows incoming = compacted(rows_of_rank(e, quantity, peer));
      const BufferId in = place_field(e, e.recv, quantity, dtype, incoming, mine, "from", peer);
      if (in == kNone) continue;
      received.push_back(in);
      append(unpack, regroup(incoming, head_rows(e, quantity),
                             {.src = in, .dst = to, .heads = mine.second - mine.first}, true));
    }
    messages.push_back(Builder::message(TransferKind::kSend, peer, kToHeads, std::move(sent)));
    messages.push_back(Builder::message(TransferKind::kRecv, peer, kToHeads, std::move(received)));
  }
  e.builder.copy(StepKind::kPack, std::move(pack));
  e.builder.transfer(StepKind::kAllToAll, std::move(messages));
  e.builder.copy(StepKind::kUnpack, std::move(own));
  e.builder.copy(StepKind::kUnpack, std::move(unpack));
}

void exchange_from_heads(Emission& e, const std::vector<Move>& moves) {
  e.builder.rewind(e.send);
  e.builder.rewind(e.recv);
  const auto ways = static_cast<size_t>(e.arrangement.ways);
  std::vector<std::vector<BufferId>> received(moves.size(), std::vector<BufferId>(ways, kNone));
  std::vector<Copy> pack, own, unpack;
  std::vector<Message> messages;
  for (int m = 0; m < e.arrangement.ways; ++m) {
    const int peer = e.member_rank(m);
    std::vector<BufferId> outgoing, incoming;
    for (size_t i = 0; i < moves.size(); ++i) {
      const Buffer target = e.builder.buffer(moves[i].to);  // a copy: placing moves buffers
      const Quantity quantity = target.quantity;
      const DType wire = wire_type(e, target);
      const auto theirs = heads_of(share_of(e, m), quantity);
      const auto mine = heads_of(e.share, quantity);
      const Rows& rows = own_rows(e, quantity);
      Copy home{.dst = moves[i].to, .dst_head = theirs.first,
                .heads = theirs.second - theirs.first};
      const bool added = wire != target.dtype || (is_key_side(quantity) &&
                                                  shares_kv_heads(e.problem, e.arrangement.ways));
      if (m == e.member) {
        home.src = moves[i].from;
        if (!added) append(own, regroup(rows, head_rows(e, quantity), home, false));
        continue;
      }
      const Rows sent = compacted(rows_of_rank(e, quantity, peer));
      const BufferId out = place_field(e, e.send, quantity, wire, sent, mine, "home", peer);
      if (out != kNone) {
        outgoing.push_back(out);
        append(pack, regroup(sent, head_rows(e, quantity),
                             {.src = moves[i].from, .dst = out, .heads = mine.second - mine.first},
                             false));
      }
      const BufferId in = place_field(e, e.recv, quantity, wire, compacted(rows), theirs,
                                      "result", peer);
      if (in == kNone) continue;
      incoming.push_back(in);
      received[i][static_cast<size_t>(m)] = in;
      home.src = in;
      if (!added) append(unpack, regroup(rows, compacted(rows), home, false));
    }
    messages.push_back(Builder::message(TransferKind::kSend, peer, kFromHeads, std::move(outgoing)));
    messages.push_back(Builder::message(TransferKind::kRecv, peer, kFromHeads, std::move(incoming)));
  }
  e.builder.copy(StepKind::kPack, std::move(pack));
  e.builder.transfer(StepKind::kAllToAll, std::move(messages));
  e.builder.copy(StepKind::kUnpack, std::move(own));
  e.builder.copy(StepKind::kUnpack, std::move(unpack));
  if (!shares_kv_heads(e.problem, e.arrangement.ways)) return;
  for (size_t i = 0; i < moves.size(); ++i) {
    if (is_key_side(e.builder.buffer(moves[i].to).quantity)) add_up(e, moves[i], received[i]);
  }
}

}  // namespace longspan
