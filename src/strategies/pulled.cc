// One attend step over the keys of all ranks, which it brings itself: every rank lends its keys and
// values, and pulls the rows that its queries see into the order of the tokens.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "strategies/emit.h"

namespace longspan {
namespace {

/// K and V of one kind.
using KeysValues = std::array<BufferId, 2>;
constexpr std::array<Quantity, 2> kQuantities = {Quantity::kK, Quantity::kV};

class Pulled {
 public:
  Pulled(Emission& e, const AttendBuffers& buffers) : e_(e), b_(buffers) {}

  int64_t run() {
    const Rows& needed = e_.own.needed;
    const KeysValues lent = lend();
    const KeysValues gathered = place("gathered", needed);
    std::vector<Copy> copies;
    for (int owner = 0; owner < e_.setting.topology.ranks(); ++owner) {
      const std::vector<SharedRows> rows = shared_rows(rows_of(owner), needed);
      if (rows.empty()) continue;
      const KeysValues from = owner == e_.rank ? lent : of_peer(owner);
      for (size_t i = 0; i < from.size(); ++i) {
        add_copies(copies, rows, from[i], gathered[i], e_.problem.heads_kv);
      }
    }
    e_.builder.pull(std::move(copies), readers_.empty() ? std::vector<BufferId>() : list(lent),
                    readers_);
    e_.builder.attend(
        {.kind = StepKind::kAttend,
         .parts = {{.k = gathered[0], .v = gathered[1], .tiles = on_needed_rows(e_.own)}},
         .q = b_.q,
         .o = b_.o,
         .lse = b_.lse,
         .max_logit = b_.max_logit});
    return std::max(needed.rows, e_.own_k.rows);
  }

 private:
  static std::vector<BufferId> list(const KeysValues& buffers) {
    return {buffers.begin(), buffers.end()};
  }
  Rows rows_of(int rank) const { return valid_rows(e_.setting.partition.k(rank)); }

  Buffer buffer(size_t i, const Rows& rows, std::string name) const {
    return {.quantity = kQuantities[i],
            .name = std::move(name),
            .dtype = e_.problem.dtype,
            .rows = rows.rows,
            .heads = e_.problem.heads_kv,
            .dim = e_.dim_of(kQuantities[i]),
            .runs = rows.runs};
  }

  KeysValues place(std::string_view role, const Rows& rows) {
    KeysValues ids{};
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = e_.workspace(buffer(i, rows, fmt::format("{}.{}", name(kQuantities[i]), role)));
    }
    return ids;
  }

  /// Own keys and values as this rank and its readers read them.
  KeysValues lend() {
    const Rows keys = all_keys(e_.setting);
    for (int rank = 0; rank < e_.setting.topology.ranks(); ++rank) {
      if (rank == e_.rank) continue;
      const Rows queries = valid_rows(e_.setting.partition.q(rank));
      const Rows seen = meet(e_.problem, queries, keys).needed;
      if (!shared_rows(seen, e_.own_k).empty()) readers_.push_back(rank);
    }
    const KeysValues lent = place("lent", e_.own_k);
    std::vector<Copy> copies;
    for (const auto& [from, to] : {std::pair{b_.k, lent[0]}, {b_.v, lent[1]}}) {
      const std::vector<Copy> more = copy_rows(e_.own_k, from, to, e_.problem.heads_kv);
      copies.insert(copies.end(), more.begin(), more.end());
    }
    e_.builder.copy(StepKind::kLend, std::move(copies));
    return lent;
  }

  KeysValues of_peer(int peer) {
    KeysValues ids{};
    for (size_t i = 0; i < ids.size(); ++i) {
      Buffer lent =
          buffer(i, rows_of(peer), fmt::format("{}.lent_by{}", name(kQuantities[i]), peer));
      lent.space = Space::kPeer;
      lent.peer = peer;
      ids[i] = e_.builder.add(std::move(lent));
    }
    return ids;
  }

  Emission& e_;
  const AttendBuffers& b_;
  std::vector<int> readers_;
};

}  // namespace

int64_t attend_pulled(Emission& emission, const AttendBuffers& buffers) {
  return Pulled(emission, buffers).run();
}

}  // namespace longspan
