#include <algorithm>

#include "longspan/communicator.h"

namespace longspan {

int Topology::nodes() const {
  if (node_of_rank.empty()) return 0;
  return *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1;
}

Topology Topology::blocks(int ranks, int nodes) {
  const int count = std::max(ranks, 0);
  const int64_t used = std::clamp(nodes, 1, std::max(count, 1));
  Topology topology;
  topology.node_of_rank.reserve(static_cast<size_t>(count));
  for (int64_t rank = 0; rank < count; ++rank) {
    topology.node_of_rank.push_back(static_cast<int>(rank * used / count));
  }
  return topology;
}

}  // namespace longspan
