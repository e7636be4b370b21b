#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "longspan/communicator.h"

namespace longspan {
namespace {

TEST(Topology, BlocksAreConsecutiveAndAsEqualAsPossible) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    for (int nodes = 1; nodes <= ranks; ++nodes) {
      const Topology topology = Topology::blocks(ranks, nodes);
      ASSERT_EQ(topology.ranks(), ranks);
      ASSERT_EQ(topology.nodes(), nodes);
      ASSERT_TRUE(std::is_sorted(topology.node_of_rank.begin(), topology.node_of_rank.end()));
      std::map<int, int> sizes;
      for (const int node : topology.node_of_rank) ++sizes[node];
      ASSERT_EQ(static_cast<int>(sizes.size()), nodes);
      for (const auto& [node, size] : sizes) {
        ASSERT_GE(size, ranks / nodes);
        ASSERT_LE(size, (ranks + nodes - 1) / nodes);
      }
    }
  }
}

TEST(Topology, NoMoreNodesThanRanks) {
  EXPECT_EQ(Topology::blocks(3, 8).nodes(), 3);
  EXPECT_EQ(Topology::blocks(3, 0).nodes(), 1);
  EXPECT_EQ(Topology::blocks(0, 2).ranks(), 0);
  EXPECT_EQ(Topology{}.nodes(), 0);
}

TEST(Topology, LargeCounts) {
  const Topology topology = Topology::blocks(100000, 90000);
  EXPECT_EQ(topology.nodes(), 90000);
  EXPECT_EQ(topology.node_of_rank.front(), 0);
}

}  // namespace
}  // namespace longspan
