// The words through which devices tell each other how far a message is. Per message slot there are
// two, each 0 between messages:
//
//   receiver's stream   memory free, room = 1                           wait arrived, arrived = 0
//   sender's lane                     wait room, room = 0, copy, arrived = 1
//
// Of a loan, a launch of the lender's on a device of its own does what stands for its stream, and a
// launch of the borrower's what stands for the lane.
//
// `room` lies in the sender's memory and `arrived` in the receiver's, so that devices wait for
// words of their own. A slot carries its next message only after its receiver saw `arrived`:
// constants suffice, and a replayed graph needs no reset.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/peer/region.h"

namespace longspan::comm {

class Flags {
 public:
  /// Words of each rank.
  static size_t words(int ranks) { return 2 * static_cast<size_t>(ranks) * kSlots; }

  Flags() = default;
  /// `words_of_rank`: where this rank reaches the words of each.
  explicit Flags(std::vector<uint32_t*> words_of_rank) : words_(std::move(words_of_rank)) {}

  uint32_t* room(int source, int destination, int slot) const {
    return own(source) + destination * kSlots + slot;
  }
  uint32_t* arrived(int source, int destination, int slot) const {
    const auto behind_room = static_cast<int>(words_.size()) * kSlots;
    return own(destination) + behind_room + source * kSlots + slot;
  }
  uint32_t* own(int rank) const { return words_[static_cast<size_t>(rank)]; }

 private:
  std::vector<uint32_t*> words_;
};

}  // namespace longspan::comm
