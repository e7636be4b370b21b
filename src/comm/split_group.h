// Who belongs to which part when a communicator is split.
#pragma once

#include <cstdint>
#include <vector>

#include "longspan/communicator.h"

namespace longspan::comm {

/// One part, seen by one of its members.
struct SplitGroup {
  std::vector<int> members;  // ranks of the communicator that is split, in the order of the part
  int rank = 0;              // the caller's place among them
  Topology topology;         // of the part, nodes numbered from 0 in order of appearance
};

/// Collective: the ranks tell each other colour and key.
Result<SplitGroup> agree_on_split(Communicator& communicator, int color, int key);

/// The part of `rank` where colors_and_keys holds (colour, key) of every rank.
SplitGroup make_split_group(const std::vector<uint64_t>& colors_and_keys, const Topology& topology,
                            int rank);

}  // namespace longspan::comm
