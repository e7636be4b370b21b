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

const MemberRows& member_rows(const Emission& e, Quantity quantity, int member) {
  return (is_key_side(quantity) ? e.k_members : e.q_members)[static_cast<size_t>(member)];
}

/// From the rows of one member, in its own tensor or in a message, to their places in head layout.
std::vector<Copy> to_places(const Rows& rows, const std::vector<Place>& places, Copy prototype) {
  std::vector<Copy> copies(places.size(), prototype);
  for (size_t i = 0; i < places.size(); ++i) {
    copies[i].rows = rows.runs[i].valid;
    copies[i].src_row = rows.runs[i].row;
    copies[i].dst_row = places[i].row;
    copies[i].dst_step = places[i].step;
  }
  return copies;
}

std::vector<Copy> from_places(const std::vector<Place>& places, const Rows& rows, Copy prototype) {
  std::vector<Copy> copies = to_places(rows, places, prototype);
  for (Copy& copy : copies) {
    std::swap(copy.src_row, copy.dst_row);
    std::swap(copy.src_step, copy.dst_step);
  }
  return copies;
}

/// Between two numberings of the same runs.
std::vector<Copy> renumber(const Rows& from, const Rows& to, Copy prototype) {
  std::vector<Copy> copies(from.runs.size(), prototype);
  for (size_t i = 0; i < copies.size(); ++i) {
    copies[i].rows = from.runs[i].valid;
    copies[i].src_row = from.runs[i].row;
    copies[i].dst_row = to.runs[i].row;
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
  return e.builder.place(
      region, {.quantity = quantity,
               .name = fmt::format("{}.{}{}{}", name(quantity), direction, peer, e.label()),
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
  std::vector<Copy> pack;
  std::vector<Message> messages;
  Arrival arrival;

  void add(int peer, uint32_t tag, std::vector<BufferId> sent, std::vector<BufferId> received) {
    messages.push_back(Builder::message(TransferKind::kSend, peer, tag, std::move(sent)));
    messages.push_back(Builder::message(TransferKind::kRecv, peer, tag, std::move(received)));
  }
  Arrival send(Builder& builder) && {
    builder.copy(StepKind::kPack, std::move(pack));
    builder.transfer(StepKind::kAllToAll, std::move(messages));
    return std::move(arrival);
  }
};

/// The exchange buffers of the selected slice.
RegionId sent_from(const Emission& e) { return e.exchanges[static_cast<size_t>(e.slice)].first; }
RegionId received_in(const Emission& e) { return e.exchanges[static_cast<size_t>(e.slice)].second; }

void rewind(Emission& e) {
  e.builder.rewind(sent_from(e));
  e.builder.rewind(received_in(e));
}

/// dk or dv of shared key heads: every member's part is added in order of members.
void add_up(Emission& e, const Move& move, const std::vector<BufferId>& received) {
  const Quantity quantity = e.builder.buffer(move.to).quantity;
  const MemberRows& own = e.k_members[static_cast<size_t>(e.member)];
  const Rows& compact = own.compact;
  const BufferId sum = e.workspace({.quantity = quantity,
                                    .name = fmt::format("{}_owner", name(quantity)),
                                    .dtype = accumulator(e.problem.dtype),
                                    .rows = compact.rows,
                                    .heads = e.problem.heads_kv,
                                    .dim = e.dim_of(quantity),
                                    .runs = compact.runs});
  std::vector<Copy> additions;
  for (int m = 0; m < e.arrangement.ways; ++m) {
    const HeadShare share = e.share_of(m);
    const Copy prototype{.src = m == e.member ? move.from : received[static_cast<size_t>(m)],
                         .dst = sum,
                         .dst_head = share.kv_begin,
                         .heads = share.kv_heads()};
    if (prototype.src == kNone || prototype.heads == 0) continue;
    append(additions, m == e.member ? from_places(own.places, compact, prototype)
                                    : renumber(compact, compact, prototype));
  }
  e.builder.fill({{sum, 0, compact.rows}});
  e.builder.copy(StepKind::kAccumulate, std::move(additions));
  std::vector<Copy> home =
      renumber(compact, e.own_k, {.src = sum, .dst = move.to, .heads = e.problem.heads_kv});
  e.builder.copy(StepKind::kUnpack, std::move(home));
}

/// What this rank gives member m and gets from it.
void to_heads_of(Emission& e, const std::vector<Move>& moves, int m, Exchange& x) {
  const int peer = e.member_rank(m);
  std::vector<BufferId> sent, received;
  for (const auto& [from, to] : moves) {
    const Quantity quantity = e.builder.buffer(from).quantity;
    const DType dtype = e.builder.buffer(from).dtype;
    const auto theirs = heads_of(e.share_of(m), quantity);
    const auto mine = heads_of(e.share, quantity);
    const Rows& rows = own_rows(e, quantity);
    const auto& [compact, own_places] = member_rows(e, quantity, e.member);
    Copy copy{.src = from, .src_head = theirs.first, .heads = theirs.second - theirs.first};
    if (m == e.member) {
      copy.dst = to;
      append(x.arrival.own, to_places(rows, own_places, copy));
      continue;
    }
    copy.dst = place_field(e, sent_from(e), quantity, dtype, compact, theirs, "to", peer);
    if (copy.dst != kNone) {
      append(x.pack, renumber(rows, compact, copy));
      sent.push_back(copy.dst);
    }
    const auto& [incoming, places] = member_rows(e, quantity, m);
    const BufferId in =
        place_field(e, received_in(e), quantity, dtype, incoming, mine, "from", peer);
    if (in == kNone) continue;
    received.push_back(in);
    append(x.arrival.unpack,
           to_places(incoming, places, {.src = in, .dst = to, .heads = mine.second - mine.first}));
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
    const auto theirs = heads_of(e.share_of(m), quantity);
    const auto mine = heads_of(e.share, quantity);
    const Rows& rows = own_rows(e, quantity);
    const auto& [compact, own_places] = member_rows(e, quantity, e.member);
    Copy home{.dst = to, .dst_head = theirs.first, .heads = theirs.second - theirs.first};
    if (m == e.member) {
      home.src = from;
      if (!partial) append(x.arrival.own, from_places(own_places, rows, home));
      continue;
    }
    const auto& [outgoing, places] = member_rows(e, quantity, m);
    const BufferId out = place_field(e, sent_from(e), quantity, wire, outgoing, mine, "home", peer);
    if (out != kNone) {
      sent.push_back(out);
      append(x.pack, from_places(places, outgoing,
                                 {.src = from, .dst = out, .heads = mine.second - mine.first}));
    }
    home.src = place_field(e, received_in(e), quantity, wire, compact, theirs, "result", peer);
    if (home.src == kNone) continue;
    received.push_back(home.src);
    by_move[i] = home.src;
    if (partial) continue;
    append(x.arrival.unpack, renumber(compact, rows, home));
  }
  if (m != e.member) x.add(peer, kFromHeads, std::move(sent), std::move(received));
  return by_move;
}

}  // namespace

Arrival send_to_heads(Emission& e, const std::vector<Move>& moves) {
  rewind(e);
  Exchange exchange;
  for (int m = 0; m < e.arrangement.ways; ++m) to_heads_of(e, moves, m, exchange);
  return std::move(exchange).send(e.builder);
}

Arrival send_from_heads(Emission& e, const std::vector<Move>& moves) {
  rewind(e);
  Exchange exchange;
  std::vector<std::vector<BufferId>> received;  // by member, then by move
  for (int m = 0; m < e.arrangement.ways; ++m) {
    received.push_back(from_heads_of(e, moves, m, exchange));
  }
  Arrival arrival = std::move(exchange).send(e.builder);
  for (size_t i = 0; i < moves.size(); ++i) {
    if (!is_partial(e, e.builder.buffer(moves[i].to).quantity)) continue;
    arrival.sums.push_back(moves[i]);
    std::vector<BufferId>& parts = arrival.parts.emplace_back();
    for (const std::vector<BufferId>& member : received) parts.push_back(member[i]);
  }
  return arrival;
}

void take(Emission& e, Arrival arrival) {
  e.builder.copy(StepKind::kUnpack, std::move(arrival.own));
  e.builder.copy(StepKind::kUnpack, std::move(arrival.unpack));
  for (size_t i = 0; i < arrival.sums.size(); ++i) add_up(e, arrival.sums[i], arrival.parts[i]);
}

}  // namespace longspan
