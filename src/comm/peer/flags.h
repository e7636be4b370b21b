// The words through which devices tell each other how far a message is. Per message slot there are
// two, each 0 between messages:
//
//   sender's stream    data done, ready = 1                       wait done, done = 0
//   receiver's lane                  wait ready, ready = 0, copy, done = 1
//
// `ready` lies in the receiver's memory and `done` in the sender's, so that devices wait for words
// of their own. A slot carries its next message only after its sender saw `done`: constants
// suffice, and a replayed graph needs no reset.
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

  uint32_t* ready(int source, int destination, int slot) const {
    return words_[static_cast<size_t>(destination)] + source * kSlots + slot;
  }
  uint32_t* done(int source, int destination, int slot) const {
    const auto behind_ready = static_cast<int>(words_.size()) * kSlots;
    return words_[static_cast<size_t>(source)] + behind_ready + destination * kSlots + slot;
  }
  uint32_t* own(int rank) const { return words_[static_cast<size_t>(rank)]; }

 private:
  std::vector<uint32_t*> words_;
};

}  // namespace longspan::comm
