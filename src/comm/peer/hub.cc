#include "comm/peer/hub.h"

#include <utility>

namespace longspan::comm {

Result<PeerMessage*> PeerHub::take(Pair pair) {
  std::deque<PeerMessage>& all = messages[pair];
  for (PeerMessage& message : all) {
    if (message.seen) return &message;
  }
  LONGSPAN_TRY(cuda::Event ready, cuda::Event::make());
  all.push_back({.ready = std::move(ready), .done = std::nullopt});
  return &all.back();
}

PeerMessage* PeerHub::front(const Route& route) {
  const auto found = sent.find(route);
  return found == sent.end() || found->second.empty() ? nullptr : found->second.front();
}

void PeerHub::leave(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex);
  std::optional<std::string>& why = gone[static_cast<size_t>(rank)];
  if (!why) why = reason;
  changed.notify_all();
}

}  // namespace longspan::comm
