// Every rank computes all tokens for a share of the heads. Backward starts from what an all_to_all
// forward kept in head layout; after another forward it exchanges q, k, v and LSE as well.
#include <fmt/format.h>

#include <algorithm>

#include "strategies/emit.h"
#include "strategies/list.h"

namespace longspan {
namespace {

Verdict consider(const Setting& setting, Direction) {
  if (auto decline = needs_known_lengths(setting.problem)) return *decline;
  const Problem& p = setting.problem;
  const int ranks = setting.topology.ranks();
  if (p.invariant && p.heads_kv < ranks) {
    return Offer{
        fmt::format("{} key heads over {} ranks, none shared (invariant): {} ranks compute "
                    "nothing",
                    p.heads_kv, ranks, ranks - p.heads_kv)};
  }
  if (p.heads_q < ranks) {
    return Offer{fmt::format("{} query heads over {} ranks: {} ranks compute nothing", p.heads_q,
                             ranks, ranks - p.heads_q)};
  }
  if (shares_kv_heads(p, ranks)) {
    return Offer{fmt::format("{} key heads shared by {} ranks, their dK and dV added in order",
                             p.heads_kv, ranks)};
  }
  return Offer{fmt::format("{} to {} key heads a rank", p.heads_kv / ranks,
                           (p.heads_kv + ranks - 1) / ranks)};
}

Result<Schedule> build(const Setting& setting, Direction direction, int rank) {
  return emit(setting, direction, rank, "all_to_all",
              {.ways = setting.topology.ranks(), .rings = 1});
}

}  // namespace

const Strategy kAllToAll = {"all_to_all", "every rank computes all tokens for a share of the heads",
                            consider, build};

}  // namespace longspan
