// The half of the peer communicator that waits, and what ends waits that cannot succeed.
#include <algorithm>

#include "comm/backoff.h"
#include "comm/deadline.h"
#include "comm/errors.h"
#include "comm/peer/communicator.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "peer";

}  // namespace

Result<bool> PeerCommunicator::complete(const Flight& flight, Heard heard) const {
  bool all_queued = flight.copies == flight.sends.size();
  if (heard == Heard::kLenders) return all_queued;
  for (const Flight::Receive& receive : flight.receives) {
    const Transfer& t = receive.transfer;
    const uint32_t state = mailbox_.state(t.peer, receive.slot);
    if (state == Mail::kRefused) {
      return Error{ErrorCode::kInvalidArgument,
                   mismatch_text({.source = t.peer,
                                  .sent = mailbox_.sent(t.peer, receive.slot),
                                  .destination = rank(),
                                  .expected = t.bytes,
                                  .tag = t.tag}),
                   kWhere};
    }
    all_queued = all_queued && state == Mail::kTaken;
  }
  return all_queued;
}

std::vector<Transfer> PeerCommunicator::unanswered(const Flight& flight) const {
  std::vector<Transfer> transfers;
  for (const Flight::Receive& receive : flight.receives) {
    const Transfer& t = receive.transfer;
    if (mailbox_.state(t.peer, receive.slot) == Mail::kPosted) transfers.push_back(t);
  }
  for (const Flight::Send& send : flight.sends) {
    if (!send.queued) transfers.push_back(send.transfer);
  }
  return transfers;
}

std::optional<Error> PeerCommunicator::departed(const Flight& flight) const {
  for (int peer = 0; peer < size(); ++peer) {
    const std::optional<Error> error = meeting_.region->departed(peer);
    if (!error) continue;
    for (const Transfer& transfer : unanswered(flight)) {
      if (transfer.peer == peer) return error;
    }
  }
  return std::nullopt;
}

Status PeerCommunicator::hear_from_peers(Flight& flight, Heard heard,
                                         std::chrono::milliseconds deadline) {
  const auto until = deadline_after(deadline);
  Backoff backoff;
  while (true) {
    LONGSPAN_CHECK_OK(health());
    // Asked before the last look at the mail: who leaves may have posted first.
    const std::optional<Error> gone = departed(flight);
    const bool too_late = std::chrono::steady_clock::now() >= until;
    LONGSPAN_CHECK_OK(progress());
    LONGSPAN_TRY(const bool done, complete(flight, heard));
    if (done) return {};
    if (gone) return *gone;
    if (too_late) {
      const std::vector<Transfer> missing = unanswered(flight);
      return late_peer(missing.front(), static_cast<int>(missing.size()), deadline, kWhere);
    }
    backoff.pause();
  }
}

Status PeerCommunicator::queue_waits(Flight& flight, Stream stream) {
  if (!flight.of_loans && !flight.sends.empty()) LONGSPAN_CHECK_OK(flight.copied.hold(stream));
  if (flight.lent_by_launch) return {};
  for (const Flight::Receive& receive : flight.receives) {
    uint32_t* const arrived = meeting_.flags.arrived(receive.transfer.peer, rank(), receive.slot);
    words_.wait(arrived);
    words_.write(arrived, 0);
  }
  return words_.enqueue(stream);
}

Result<Flight*> PeerCommunicator::open_flight(Request request) const {
  const auto index = static_cast<size_t>(request.id);
  if (request.id < 0 || index >= flights_.size() || !flights_[index]->open) {
    return unknown_request(request, kWhere);
  }
  return flights_[index].get();
}

Status PeerCommunicator::wait_on(Request request, Stream stream,
                                 std::chrono::milliseconds deadline) {
  LONGSPAN_TRY(Flight* const open, open_flight(request));
  const cuda::DeviceScope scope(ordinal_);
  Flight& flight = *open;
  confirm_loans(flight);
  const bool nobody_lent = flight.of_loans && launches_lend() && !flight.lent_by_launch;
  if (nobody_lent) LONGSPAN_CHECK_OK(offer_room(flight, stream));
  const Status heard = hear_from_peers(flight, Heard::kAll, deadline);
  if (!heard.ok()) {
    watch_->fail(heard.error());
    return heard;
  }
  if (flight.captured) {
    // Its slots stay the graph's: a replay may come at any time.
    LONGSPAN_CHECK_OK(queue_waits(flight, stream));
    flight.open = false;
    return {};
  }
  LONGSPAN_CHECK_OK(follow_last(stream));
  LONGSPAN_CHECK_OK(queue_waits(flight, stream));
  LONGSPAN_CHECK_OK(flight.after.record(stream));
  if (flight.of_loans) LONGSPAN_CHECK_OK(flight.after.hold(meeting_.lane.get()));
  for (const Flight::Receive& receive : flight.receives) {
    mailbox_.give_back(receive.transfer.peer, receive.slot);
  }
  flight.open = false;
  last_ = &flight;
  last_stream_ = stream;
  watch_->add(flight, deadline);
  return {};
}

std::optional<Error> PeerCommunicator::lost() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    if (auto error = meeting_.region->lost(peer)) return error;
  }
  return std::nullopt;
}

void PeerCommunicator::satisfy_waits(const Error& reason) {
  meeting_.region->leave(rank(), Card::kGaveUp, reason.text());
  const cuda::DeviceScope scope(ordinal_);
  if (!rescued_.reached()) return;
  const size_t bytes = Flags::words(size()) * sizeof(uint32_t);
  // Every byte 1: words are then positive. By a copy engine: a kernel that fills would wait behind
  // the very kernels that wait for the words.
  void* const flags = meeting_.flags.own(rank());
  const Status set = ones_ ? cuda::copy_on_device(flags, ones_.get(), bytes, rescue_.get())
                           : cuda::fill_on_device(flags, 1, bytes, rescue_.get());
  if (!set.ok()) return;
  (void)rescued_.record(rescue_.get()).ok();
}

void PeerCommunicator::abandon(const Error& reason) {
  meeting_.region->leave(rank(), Card::kGaveUp, reason.text());
  watch_->fail(reason);
  host_->abandon(reason);
}

}  // namespace longspan::comm
