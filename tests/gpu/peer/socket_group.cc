#include "gpu/peer/socket_group.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <utility>

namespace longspan::testing {
namespace {

Status failed(int peer) {
  return Error{ErrorCode::kPeerLost, "rank " + std::to_string(peer) + " closed its socket",
               "sockets"};
}

Status receive(int socket, const Transfer& t) {
  size_t got = 0;
  while (got < t.bytes) {
    const ssize_t count = ::read(socket, static_cast<char*>(t.data) + got, t.bytes - got);
    if (count <= 0) return failed(t.peer);
    got += static_cast<size_t>(count);
  }
  return {};
}

}  // namespace

SocketGroup::SocketGroup(int ranks)
    : ranks_(ranks), sockets_(static_cast<size_t>(ranks * ranks), -1) {
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      std::array<int, 2> pair = {-1, -1};
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) != 0) continue;
      sockets_[static_cast<size_t>(a * ranks + b)] = pair[0];
      sockets_[static_cast<size_t>(b * ranks + a)] = pair[1];
    }
  }
}

SocketGroup::~SocketGroup() {
  for (const int socket : sockets_) {
    if (socket >= 0) close(socket);
  }
}

std::shared_ptr<Communicator> SocketGroup::rank(int rank) const {
  struct Posted {
    std::vector<Transfer> receives;
    int64_t requests = 0;
  };
  const auto posted = std::make_shared<Posted>();
  CallbackGroup group;
  group.rank = rank;
  group.topology = Topology::blocks(ranks_, 1);
  group.start = [this, rank, posted](std::span<const Transfer> transfers) -> Result<Request> {
    for (const Transfer& t : transfers) {
      if (t.kind == TransferKind::kRecv) {
        posted->receives.push_back(t);
      } else if (::send(socket(rank, t.peer), t.data, t.bytes, MSG_NOSIGNAL) < 0) {
        return failed(t.peer).error();
      }
    }
    return Request{posted->requests++};
  };
  group.wait = [this, rank, posted](Request, std::chrono::milliseconds) -> Status {
    for (const Transfer& t : std::exchange(posted->receives, {})) {
      LONGSPAN_CHECK_OK(receive(socket(rank, t.peer), t));
    }
    return {};
  };
  auto communicator = make_callback_communicator(std::move(group));
  return communicator.ok() ? std::move(communicator).value() : nullptr;
}

}  // namespace longspan::testing
