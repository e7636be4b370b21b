// What the ranks of one process share: who has sent what, and how far the copies are.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// One message from when it is sent until the sender has seen that it was copied. Reused between
/// messages of the same pair of ranks.
struct PeerMessage {
  const void* data = nullptr;
  size_t bytes = 0;
  uint32_t tag = 0;
  cuda::Event ready;                // sender: the data is there
  std::optional<cuda::Event> done;  // receiver: it was copied; made on the receiver's device
  bool copied = false;
  bool seen = true;  // by the sender: free for the next message
};

/// Thread-safe; the members below need `mutex`.
struct PeerHub {
  explicit PeerHub(int ranks) : gone(static_cast<size_t>(ranks)) {}

  using Pair = std::pair<int, int>;              // source, destination
  using Route = std::tuple<int, int, uint32_t>;  // source, destination, tag

  /// A free message of the pair; made where there is none.
  Result<PeerMessage*> take(Pair pair);
  /// The oldest message of the route that nobody has copied, or null.
  PeerMessage* front(const Route& route);
  void leave(int rank, const std::string& reason);

  std::mutex mutex;
  std::condition_variable changed;
  std::map<Pair, std::deque<PeerMessage>> messages;  // deques: messages never move
  std::map<Route, std::deque<PeerMessage*>> sent;    // not yet copied
  std::vector<std::optional<std::string>> gone;      // why a rank left
};

}  // namespace longspan::comm
