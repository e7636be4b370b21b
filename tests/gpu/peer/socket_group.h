// A process group over sockets, for ranks that a test forks: the caller's own transport.
#pragma once

#include <memory>
#include <vector>

#include "longspan/communicator.h"

namespace longspan::testing {

/// Made before the ranks are forked; each then takes its side.
class SocketGroup {
 public:
  explicit SocketGroup(int ranks);
  ~SocketGroup();
  SocketGroup(const SocketGroup&) = delete;
  SocketGroup& operator=(const SocketGroup&) = delete;

  /// The communicator of a rank; for small messages, received in the order in which they were sent.
  std::shared_ptr<Communicator> rank(int rank) const;

 private:
  int socket(int own, int peer) const { return sockets_[static_cast<size_t>(own * ranks_ + peer)]; }
  int ranks_;
  std::vector<int> sockets_;  // by own rank and peer; -1 to itself
};

}  // namespace longspan::testing
