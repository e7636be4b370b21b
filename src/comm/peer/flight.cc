#include "comm/peer/flight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "comm/errors.h"

namespace longspan::comm {

Result<std::unique_ptr<Flight>> Flight::make() {
  const cuda::CaptureIsNoHindrance relaxed;
  LONGSPAN_TRY(cuda::Event entry, cuda::Event::make());
  LONGSPAN_TRY(cuda::Event copied, cuda::Event::make());
  LONGSPAN_TRY(cuda::Event after, cuda::Event::make());
  return std::unique_ptr<Flight>(new Flight(std::move(entry), std::move(copied), std::move(after)));
}

Error Flight::late(std::chrono::milliseconds deadline) const {
  const int count = static_cast<int>(sends.size() + receives.size());
  if (count == 1) {
    const Transfer& only = sends.empty() ? receives[0].transfer : sends[0].transfer;
    return late_peer(only, count, deadline, "peer");
  }
  std::set<int> peers;
  for (const Send& send : sends) peers.insert(send.transfer.peer);
  for (const Receive& receive : receives) peers.insert(receive.transfer.peer);
  return {ErrorCode::kPeerLost,
          fmt::format("rank {} did not finish {} transfers within {} ms on the device; it died, or "
                      "is slower than the deadline",
                      fmt::join(peers, " or "), count, deadline.count()),
          "peer"};
}

void Flight::clear() {
  sends.clear();
  receives.clear();
  loans.clear();
  lent.clear();
  counters = nullptr;
  copies = 0;
  of_loans = false;
  lent_by_launch = false;
}

}  // namespace longspan::comm
