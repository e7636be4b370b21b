// all_to_all inside each node, ring between nodes: keys and values cross the network once per node
// pair instead of once per rank pair.
#include <fmt/format.h>

#include "strategies/emit.h"
#include "strategies/list.h"

namespace longspan {
namespace {

Verdict consider(const Setting& setting, Direction) {
  const Topology& topology = setting.topology;
  const int nodes = topology.nodes();
  const int ranks = topology.ranks();
  if (ranks % nodes != 0) {
    return Decline{
        DeclineCode::kTopology,
        fmt::format("{} ranks do not divide over {} nodes; use ring or all_to_all", ranks, nodes)};
  }
  const int ways = ranks / nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    const int node = topology.node_of_rank[static_cast<size_t>(rank)];
    if (node != rank / ways) {
      return Decline{
          DeclineCode::kTopology,
          fmt::format("rank {} is on node {} but blocks of {} ranks would put it on node "
                      "{}; place ranks node by node",
                      rank, node, ways, rank / ways)};
    }
  }
  if (auto decline = needs_known_lengths(setting.problem)) return *decline;
  if (auto decline = varies_with_ranks(setting, "hybrid", nodes)) return *decline;
  return Offer{fmt::format("all_to_all over {} ranks inside each of {} nodes, ring between them",
                           ways, nodes)};
}

Result<Schedule> build(const Setting& setting, Direction direction, int rank) {
  const int nodes = setting.topology.nodes();
  return emit(setting, direction, rank, "hybrid",
              {.ways = setting.topology.ranks() / nodes, .rings = nodes});
}

}  // namespace

const Strategy kHybrid = {"hybrid", "all_to_all inside each node, ring between nodes", consider,
                          build};

}  // namespace longspan
