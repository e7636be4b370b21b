#include "comm/nccl/flight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "comm/errors.h"

namespace longspan::comm {

Result<NcclFlight> NcclFlight::make() {
  LONGSPAN_TRY(cuda::Event entry, cuda::Event::make());
  LONGSPAN_TRY(cuda::Event begun, cuda::Event::make());
  LONGSPAN_TRY(cuda::Event done, cuda::Event::make());
  return NcclFlight(std::move(entry), std::move(begun), std::move(done));
}

void NcclFlight::take(int64_t request, std::span<const Transfer> transfers, bool captured) {
  request_ = request;
  captured_ = captured;
  waited_ = false;
  first_ = transfers.empty() ? Transfer{} : transfers.front();
  count_ = static_cast<int>(transfers.size());
  peers_.clear();
  for (const Transfer& transfer : transfers) {
    const bool known = std::find(peers_.begin(), peers_.end(), transfer.peer) != peers_.end();
    if (!known) peers_.push_back(transfer.peer);
  }
}

Status NcclFlight::enter(Stream stream, Stream lane) {
  LONGSPAN_CHECK_OK(entry_.record(stream));
  LONGSPAN_CHECK_OK(entry_.hold(lane));
  return captured_ ? Status{} : begun_.record(lane);
}

Error NcclFlight::late(std::chrono::milliseconds deadline) const {
  if (peers_.size() <= 1) return late_peer(first_, count_, deadline, "nccl");
  return {
      ErrorCode::kPeerLost,
      fmt::format("one of the ranks {} did not take part in {} transfers within {} ms; it died, "
                  "is slower than the deadline, or states other sizes",
                  fmt::join(peers_, ", "), count_, deadline.count()),
      "nccl"};
}

}  // namespace longspan::comm
