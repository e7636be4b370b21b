#include "comm/split_group.h"

#include <algorithm>
#include <array>
#include <map>

#include "comm/check_transfers.h"

namespace longspan::comm {
namespace {

uint64_t to_word(int value) { return static_cast<uint32_t>(value); }
int from_word(uint64_t word) { return static_cast<int>(static_cast<uint32_t>(word)); }

Topology part_of(const Topology& topology, const std::vector<int>& members) {
  std::map<int, int> numbers;
  Topology part;
  for (const int member : members) {
    const int node = topology.node_of_rank[static_cast<size_t>(member)];
    const int next = static_cast<int>(numbers.size());
    part.node_of_rank.push_back(numbers.emplace(node, next).first->second);
  }
  return part;
}

}  // namespace

SplitGroup make_split_group(const std::vector<uint64_t>& colors_and_keys, const Topology& topology,
                            int rank) {
  const auto color = [&](int r) { return from_word(colors_and_keys[2 * static_cast<size_t>(r)]); };
  const auto key = [&](int r) {
    return from_word(colors_and_keys[2 * static_cast<size_t>(r) + 1]);
  };

  SplitGroup group;
  for (int other = 0; other < topology.ranks(); ++other) {
    if (color(other) == color(rank)) group.members.push_back(other);
  }
  std::stable_sort(group.members.begin(), group.members.end(),
                   [&](int a, int b) { return key(a) < key(b); });
  const auto place = std::find(group.members.begin(), group.members.end(), rank);
  group.rank = static_cast<int>(place - group.members.begin());
  group.topology = part_of(topology, group.members);
  return group;
}

Result<SplitGroup> agree_on_split(Communicator& communicator, int color, int key) {
  const std::array<uint64_t, 2> mine = {to_word(color), to_word(key)};
  LONGSPAN_TRY(const std::vector<uint64_t> all, exchange_words(communicator, mine, kSplitDeadline));
  return make_split_group(all, communicator.topology(), communicator.rank());
}

}  // namespace longspan::comm
