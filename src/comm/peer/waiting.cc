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

Result<bool> PeerCommunicator::complete(const Flight& flight) const {
  bool all_taken = flight.copies == flight.receives.size();
  for (const Flight::Send& send : flight.sends) {
    const Transfer& t = send.transfer;
    const uint32_t state = mailbox_.state(t.peer, send.slot);
    if (state == Mail::kRefused) {
      return Error{ErrorCode::kInvalidArgument,
                   mismatch_text({.source = rank(),
                                  .sent = t.bytes,
                                  .destination = t.peer,
                                  .expected = mailbox_.expected(t.peer, send.slot),
                                  .tag = t.tag}),
                   kWhere};
    }
    all_taken = all_taken && state == Mail::kTaken;
  }
  return all_taken;
}

std::optional<Error> PeerCommunicator::departed(const Flight& flight) const {
  for (const Flight::Receive& receive : flight.receives) {
    if (receive.queued) continue;
    if (auto error = meeting_.region->departed(receive.transfer.peer)) return error;
  }
  for (const Flight::Send& send : flight.sends) {
    if (mailbox_.state(send.transfer.peer, send.slot) != Mail::kPosted) continue;
    if (auto error = meeting_.region->departed(send.transfer.peer)) return error;
  }
  return std::nullopt;
}

Error PeerCommunicator::late(const Flight& flight, std::chrono::milliseconds deadline) const {
  const auto open = static_cast<int>(flight.receives.size() - flight.copies);
  for (const Flight::Receive& receive : flight.receives) {
    if (!receive.queued) return late_peer(receive.transfer, open, deadline, kWhere);
  }
  for (const Flight::Send& send : flight.sends) {
    if (mailbox_.state(send.transfer.peer, send.slot) != Mail::kPosted) continue;
    return late_peer(send.transfer, open + 1, deadline, kWhere);
  }
  return {ErrorCode::kInternal, "nothing is late", kWhere};
}

Status PeerCommunicator::hear_from_peers(Flight& flight, std::chrono::milliseconds deadline) {
  const auto until = deadline_after(deadline);
  Backoff backoff;
  while (true) {
    LONGSPAN_CHECK_OK(health());
    // Asked before the last look at the mail: who leaves may have posted first.
    const std::optional<Error> gone = departed(flight);
    const bool too_late = std::chrono::steady_clock::now() >= until;
    LONGSPAN_CHECK_OK(progress());
    LONGSPAN_TRY(const bool heard, complete(flight));
    if (heard) return {};
    if (gone) return *gone;
    if (too_late) return late(flight, deadline);
    backoff.pause();
  }
}

Status PeerCommunicator::queue_waits(Flight& flight, Stream stream) {
  if (!flight.receives.empty()) LONGSPAN_CHECK_OK(flight.copied.hold(stream));
  for (const Flight::Send& send : flight.sends) {
    uint32_t* const done = meeting_.flags.done(rank(), send.transfer.peer, send.slot);
    words_.wait(done);
    words_.write(done, 0);
  }
  return words_.enqueue(stream);
}

Status PeerCommunicator::wait_on(Request request, Stream stream,
                                 std::chrono::milliseconds deadline) {
  const auto index = static_cast<size_t>(request.id);
  if (request.id < 0 || index >= flights_.size() || !flights_[index]->open) {
    return unknown_request(request, kWhere);
  }
  const cuda::DeviceScope scope(ordinal_);
  Flight& flight = *flights_[index];
  const Status heard = hear_from_peers(flight, deadline);
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
  LONGSPAN_CHECK_OK(flight.before.record(stream));
  LONGSPAN_CHECK_OK(queue_waits(flight, stream));
  LONGSPAN_CHECK_OK(flight.after.record(stream));
  for (const Flight::Send& send : flight.sends) mailbox_.give_back(send.transfer.peer, send.slot);
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
  // Every byte 1: words are then positive.
  if (!cuda::fill_on_device(meeting_.flags.own(rank()), 1, bytes, rescue_.get()).ok()) return;
  (void)rescued_.record(rescue_.get()).ok();
}

void PeerCommunicator::abandon(const Error& reason) {
  meeting_.region->leave(rank(), Card::kGaveUp, reason.text());
  watch_->fail(reason);
  host_->abandon(reason);
}

}  // namespace longspan::comm
