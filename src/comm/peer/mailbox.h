// One rank's mail: the memory that it offers to its peers for their messages, and what they offer.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/peer/region.h"

namespace longspan::comm {

/// Used by one thread at a time. The offers of a rank and tag are found in order of posting.
class Mailbox {
 public:
  Mailbox(const Region& region, int rank);

  /// A slot for a message of `peer`, kept until give_back(). out_of_memory when all are in use.
  Result<int> take_slot(int peer);
  void give_back(int peer, int slot);

  struct Letter {
    uint32_t tag = 0;
    bool captured = false;  // into a graph
    uint64_t bytes = 0;
    MemoryName data;
  };
  void post(int peer, int slot, const Letter& letter);
  /// What became of it: a Mail::State.
  uint32_t state(int peer, int slot) const;
  /// The size that the sender has; for a refused offer.
  uint64_t sent(int peer, int slot) const;

  struct Offer {
    int slot = -1;  // none has come
    Letter letter;
  };
  /// Takes in the offers that peers have posted.
  void look();
  /// The oldest offer of `peer` with this tag, of those taken in and neither taken nor refused.
  Offer find(int peer, uint32_t tag) const;
  /// As take(), but `peer` hears of it by confirm() alone.
  void claim(int peer, int slot);
  void confirm(int peer, int slot) { tell(peer, slot, Mail::kTaken); }
  /// `peer` may rely on it that the copy into its memory, or the kernel that reads it, is queued.
  void take(int peer, int slot);
  void refuse(int peer, int slot, uint64_t sent);

 private:
  struct Inbox {
    uint32_t seen = 0;         // slots of the route that were taken in
    std::vector<int> waiting;  // in order of posting
  };

  void tell(int peer, int slot, Mail::State state);

  const Region& region_;
  int rank_;
  std::vector<std::vector<int>> free_;  // slots, by peer; the next one is last
  std::vector<Inbox> inboxes_;          // by peer
};

}  // namespace longspan::comm
