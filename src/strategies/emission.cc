// Buffers and rows that every part of an emission needs.
#include <utility>

#include "strategies/emit.h"

namespace longspan {
namespace {

std::vector<MemberRows> member_rows(const Emission& e, SideOf side) {
  std::vector<MemberRows> members;
  if (e.arrangement.ways == 1) return members;
  for (int m = 0; m < e.arrangement.ways; ++m) {
    const Partition& partition = e.setting.partition;
    const int rank = e.member_rank(m);
    MemberRows member{.compact = compacted(valid_rows(side == SideOf::kQuery ? partition.q(rank)
                                                                             : partition.k(rank)))};
    for (const Run& run : member.compact.runs) {
      member.places.push_back(locate(side == SideOf::kQuery ? e.q : e.k, run));
    }
    members.push_back(std::move(member));
  }
  return members;
}

/// Slices hold equal numbers of heads on every rank, whose results need no adding up.
int head_slices(const Setting& setting, const Arrangement& arrangement) {
  const Problem& p = setting.problem;
  const bool plain = arrangement.ways > 1 && arrangement.rings == 1 && p.sink == Sink::kNone;
  const int pieces = arrangement.ways * setting.head_slices;
  return plain && p.heads_kv % pieces == 0 ? setting.head_slices : 1;
}

HeadShare slice_of(const HeadShare& share, int64_t group, int slices, int index) {
  if (slices == 1) return share;
  const int64_t heads = share.kv_heads() / slices;
  const int64_t begin = share.kv_begin + index * heads;
  return {begin * group, (begin + heads) * group, begin, begin + heads};
}

/// Stripes are left out: their queries and neighbouring keys have different strides.
bool may_gather(const Emission& e) {
  const bool allowed =
      e.direction == Direction::kForward ? e.setting.pulls : e.setting.gathers_whole;
  return allowed && e.arrangement.gather && e.arrangement.rings > 1 &&
         e.setting.partition.kind() != PartitionKind::kStriped;
}

}  // namespace

Rows all_keys(const Setting& setting) {
  return merged_rows(setting.partition, SideOf::kKey, 0, setting.topology.ranks());
}

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
      slices(head_slices(s, a)),
      share(head_share(s.problem, a.ways, r % a.ways)),
      own_q(valid_rows(s.partition.q(r))),
      own_k(valid_rows(s.partition.k(r))),
      q(group_rows(SideOf::kQuery, group)),
      k(group_rows(SideOf::kKey, group)),
      q_members(member_rows(*this, SideOf::kQuery)),
      k_members(member_rows(*this, SideOf::kKey)),
      builder(d, strategy, r, a.ways * a.rings),
      gathers(may_gather(*this)),
      own(meet(problem, q, gathers ? all_keys(s) : k)),
      whole_o(writes_whole_o(*this)),
      whole_gradients(writes_whole_gradients(*this)) {
  if (gathers && !(d == Direction::kForward ? whole_o : whole_gradients)) {
    gathers = whole_o = false;
    own = meet(problem, q, k);
  }
  for (int i = 0; i < slices; ++i) exchanges.emplace_back(builder.region(), builder.region());
  select(0);
}

void Emission::select(int index) {
  slice = index;
  builder.on_queue(index % kMostQueues);
  share = share_of(member);
}

HeadShare Emission::share_of(int other_member) const {
  return slice_of(head_share(problem, arrangement.ways, other_member), problem.group(), slices,
                  slice);
}

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
    case Quantity::kMaxLogit:
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
  if (const auto known = operands.find(quantity); known != operands.end()) return known->second;
  const bool keys = is_key_side(quantity);
  const Shard& shard = keys ? setting.partition.k(rank) : setting.partition.q(rank);
  const BufferId id = builder.add({.space = Space::kOperand,
                                   .quantity = quantity,
                                   .name = std::string(name(quantity)),
                                   .dtype = dtype,
                                   .rows = shard.rows,
                                   .heads = keys ? problem.heads_kv : problem.heads_q,
                                   .dim = dim_of(quantity),
                                   .runs = shard.runs});
  operands.emplace(quantity, id);
  return id;
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

void add_copies(std::vector<Copy>& copies, const std::vector<SharedRows>& rows, BufferId from,
                BufferId to, int64_t heads) {
  for (const SharedRows& shared : rows) {
    copies.push_back({.src = from,
                      .dst = to,
                      .src_row = shared.a_row,
                      .dst_row = shared.b_row,
                      .rows = shared.rows,
                      .heads = heads});
  }
}

}  // namespace longspan
