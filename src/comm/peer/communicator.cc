#include "comm/peer/communicator.h"

#include <algorithm>
#include <utility>

#include "comm/backoff.h"
#include "comm/check_transfers.h"
#include "comm/deadline.h"
#include "comm/errors.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "peer";

/// Flights that the device has not finished, before the host waits: as a device bounds its queues.
constexpr size_t kMostFlights = 256;

}  // namespace

Result<std::shared_ptr<PeerCommunicator>> PeerCommunicator::make(std::shared_ptr<Communicator> host,
                                                                 int ordinal) {
  const cuda::DeviceScope scope(ordinal);
  LONGSPAN_TRY(Meeting meeting, meet(*host, ordinal));
  LONGSPAN_TRY(cuda::OwnedStream rescue, cuda::OwnedStream::make());
  LONGSPAN_TRY(cuda::Event rescued, cuda::Event::make());
  return std::shared_ptr<PeerCommunicator>(new PeerCommunicator(
      std::move(host), ordinal, std::move(meeting), std::move(rescue), std::move(rescued)));
}

PeerCommunicator::PeerCommunicator(std::shared_ptr<Communicator> host, int ordinal, Meeting meeting,
                                   cuda::OwnedStream rescue, cuda::Event rescued)
    : host_(std::move(host)),
      ordinal_(ordinal),
      meeting_(std::move(meeting)),
      mailbox_(*meeting_.region, host_->rank()),
      rescue_(std::move(rescue)),
      rescued_(std::move(rescued)) {
  watch_ = std::make_unique<Watch>(
      Watch::Hooks{.lost = [this] { return lost(); },
                   .release = [this](const Error& reason) { satisfy_waits(reason); }});
}

PeerCommunicator::~PeerCommunicator() {
  const cuda::DeviceScope scope(ordinal_);
  // No copy may outlive its memory. After a failure the watch ends what streams still wait for.
  (void)(health().ok() ? cuda::synchronize(meeting_.lane.get()) : cuda::synchronize_device()).ok();
  meeting_.region->leave(rank(), Card::kReleased, "its communicator was destroyed");
  watch_.reset();
  flights_.clear();
  allocations_.clear();
  meeting_.keepers.clear();
  meeting_.memory.reset();
}

Result<void*> PeerCommunicator::allocate(size_t bytes) {
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_TRY(cuda::Memory memory, cuda::Memory::make(std::max<size_t>(bytes, 1)));
  allocations_.push_back(std::move(memory));
  return allocations_.back().data();
}

void PeerCommunicator::release(void* data) {
  const cuda::DeviceScope scope(ordinal_);
  std::erase_if(allocations_, [data](const cuda::Memory& m) { return m.data() == data; });
}

Result<size_t> PeerCommunicator::take_flight() {
  Backoff backoff;
  while (true) {
    for (size_t tried = 0; tried < std::min<size_t>(flights_.size(), 2); ++tried) {
      const size_t index = std::exchange(next_flight_, (next_flight_ + 1) % flights_.size());
      Flight& flight = *flights_[index];
      if (!flight.idle()) continue;
      watch_->remove(flight);
      flight.clear();
      return index;
    }
    if (flights_.size() < kMostFlights) {
      LONGSPAN_TRY(std::unique_ptr<Flight> flight, Flight::make());
      flights_.push_back(std::move(flight));
      return flights_.size() - 1;
    }
    LONGSPAN_CHECK_OK(health());
    backoff.pause();
  }
}

Status PeerCommunicator::follow_last(Stream stream) const {
  if (last_ == nullptr || stream.handle == last_stream_.handle) return {};
  return last_->after.hold(stream);
}

Result<Request> PeerCommunicator::start_on(std::span<const Transfer> transfers, Stream stream) {
  LONGSPAN_CHECK_OK(health());
  LONGSPAN_CHECK_OK(check_transfers(transfers, size(), kWhere));
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_TRY(const bool captured, cuda::capturing(stream));
  LONGSPAN_TRY(const size_t index, take_flight());
  Flight* const flight = flights_[index].get();
  flight->captured = captured;
  flight->open = true;
  for (const Transfer& transfer : transfers) {
    if (transfer.kind == TransferKind::kRecv) {
      flight->receives.push_back({.transfer = transfer});
      continue;
    }
    LONGSPAN_TRY(const MemoryName data, meeting_.memory->name_of(transfer.data));
    LONGSPAN_TRY(const int slot, mailbox_.take_slot(transfer.peer));
    flight->sends.push_back({.transfer = transfer, .slot = slot, .data = data});
  }
  if (!captured) LONGSPAN_CHECK_OK(follow_last(stream));
  if (!flight->receives.empty()) LONGSPAN_CHECK_OK(flight->entry.record(stream));
  LONGSPAN_CHECK_OK(post_sends(*flight, stream));
  LONGSPAN_CHECK_OK(progress());
  return Request{static_cast<int64_t>(index)};
}

Status PeerCommunicator::post_sends(Flight& flight, Stream stream) {
  for (const Flight::Send& send : flight.sends) {
    words_.write(meeting_.flags.ready(rank(), send.transfer.peer, send.slot), 1);
  }
  LONGSPAN_CHECK_OK(words_.enqueue(stream));
  // NOTE: posted once the write is queued. A wait is only ever queued behind what ends it, so ranks
  // that share a hardware queue cannot block each other.
  for (const Flight::Send& send : flight.sends) {
    mailbox_.post(send.transfer.peer, send.slot,
                  {.tag = send.transfer.tag,
                   .captured = flight.captured,
                   .bytes = send.transfer.bytes,
                   .data = send.data});
  }
  return {};
}

Status PeerCommunicator::copy(Flight& flight, Flight::Receive& receive,
                              const Mailbox::Arrival& arrival) {
  const Transfer& t = receive.transfer;
  if (arrival.letter.bytes != t.bytes) {
    mailbox_.refuse(t.peer, arrival.slot, t.bytes);
    return Error{ErrorCode::kInvalidArgument,
                 mismatch_text({.source = t.peer,
                                .sent = arrival.letter.bytes,
                                .destination = rank(),
                                .expected = t.bytes,
                                .tag = t.tag}),
                 kWhere};
  }
  if (arrival.letter.captured != flight.captured) {
    return Error{ErrorCode::kInvalidArgument,
                 "one rank captures a message into a graph and the other does not; all ranks "
                 "capture the same calls",
                 kWhere};
  }
  const Stream lane = meeting_.lane.get();
  LONGSPAN_TRY(const void* const from,
               meeting_.memory->reach(t.peer, arrival.letter.data, flight.captured));
  if (flight.copies == 0) LONGSPAN_CHECK_OK(flight.entry.hold(lane));
  uint32_t* const ready = meeting_.flags.ready(t.peer, rank(), arrival.slot);
  words_.wait(ready);
  words_.write(ready, 0);
  LONGSPAN_CHECK_OK(words_.enqueue(lane));
  LONGSPAN_CHECK_OK(cuda::copy_on_device(t.data, from, t.bytes, lane));
  words_.write(meeting_.flags.done(t.peer, rank(), arrival.slot), 1);
  LONGSPAN_CHECK_OK(words_.enqueue(lane));
  receive.queued = true;
  if (++flight.copies == flight.receives.size()) LONGSPAN_CHECK_OK(flight.copied.record(lane));
  mailbox_.take(t.peer, arrival.slot);
  return {};
}

Status PeerCommunicator::progress() {
  for (const auto& flight : flights_) {
    if (!flight->open || flight->copies == flight->receives.size()) continue;
    for (Flight::Receive& receive : flight->receives) {
      if (receive.queued) continue;
      const Transfer& t = receive.transfer;
      const Mailbox::Arrival arrival = mailbox_.find(t.peer, t.tag);
      if (arrival.slot >= 0) LONGSPAN_CHECK_OK(copy(*flight, receive, arrival));
    }
  }
  return {};
}

}  // namespace longspan::comm
