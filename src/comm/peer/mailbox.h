// One rank's mail: what it has posted to its peers, and what they have posted to it.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/peer/region.h"

namespace longspan::comm {

/// Used by one thread at a time. The messages of a route and tag match in order of posting.
class Mailbox {
 public:
  Mailbox(const Region& region, int rank);

  /// A slot for a message to `peer`, kept until give_back(). out_of_memory when all are in use.
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
  /// The size that the receiver expected; for a refused message.
  uint64_t expected(int peer, int slot) const;

  struct Arrival {
    int slot = -1;  // none has come
    Letter letter;
  };
  /// The oldest message of `source` with this tag that was neither taken nor refused.
  Arrival find(int source, uint32_t tag);
  /// The sender may rely on it that everything that answers the message is queued.
  void take(int source, int slot);
  void refuse(int source, int slot, uint64_t expected);

 private:
  struct Inbox {
    uint32_t seen = 0;         // slots of the route that were looked at
    std::vector<int> waiting;  // in order of posting
  };

  void answer(int source, int slot, Mail::State state);

  const Region& region_;
  int rank_;
  std::vector<std::vector<int>> free_;  // slots, by destination; the next one is last
  std::vector<Inbox> inboxes_;          // by source
};

}  // namespace longspan::comm
