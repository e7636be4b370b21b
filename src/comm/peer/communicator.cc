#include "comm/peer/communicator.h"

#include <fmt/format.h>

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
  LONGSPAN_TRY(CounterSets counters, CounterSets::make());
  LONGSPAN_TRY(cuda::OwnedStream rescue, cuda::OwnedStream::make());
  LONGSPAN_TRY(cuda::Event rescued, cuda::Event::make());
  return std::shared_ptr<PeerCommunicator>(
      new PeerCommunicator(std::move(host), ordinal, std::move(meeting), std::move(counters),
                           std::move(rescue), std::move(rescued)));
}

PeerCommunicator::PeerCommunicator(std::shared_ptr<Communicator> host, int ordinal, Meeting meeting,
                                   CounterSets counters, cuda::OwnedStream rescue,
                                   cuda::Event rescued)
    : host_(std::move(host)),
      ordinal_(ordinal),
      meeting_(std::move(meeting)),
      mailbox_(*meeting_.region, host_->rank()),
      counters_(std::move(counters)),
      ones_(cuda::filled_host_memory(1, Flags::words(host_->size()) * sizeof(uint32_t))),
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
      if (!flight.captured) counters_.give_back(flight.counters);  // else its graph's for good
      flight.clear();
      return index;
    }
    if (flights_.size() < kMostFlights) {
      LONGSPAN_TRY(std::unique_ptr<Flight> flight, Flight::make());
      flights_.push_back(std::move(flight));
      return flights_.size() - 1;
    }
    LONGSPAN_CHECK_OK(health());
    const bool all_open = std::all_of(flights_.begin(), flights_.end(),
                                      [](const auto& flight) { return flight->open; });
    if (all_open) {  // no device ends what the caller has not waited for
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("{} requests are open, and more there cannot be: wait for some first",
                      flights_.size()),
          kWhere};
    }
    backoff.pause();
  }
}

Status PeerCommunicator::follow_last(Stream stream) const {
  if (last_ == nullptr || stream.handle == last_stream_.handle) return {};
  return last_->after.hold(stream);
}

Result<Request> PeerCommunicator::start_on(std::span<const Transfer> transfers, Stream stream) {
  LONGSPAN_CHECK_OK(health());
  LONGSPAN_CHECK_OK(check_transfers(transfers, size(), kWhere, true));
  const cuda::DeviceScope scope(ordinal_);
  LONGSPAN_TRY(const bool captured, cuda::capturing(stream));
  LONGSPAN_TRY(const size_t index, take_flight());
  Flight* const flight = flights_[index].get();
  flight->captured = captured;
  flight->lane = lane_of(stream, captured);
  flight->open = true;
  for (const Transfer& transfer : transfers) {
    const bool borrows = transfer.kind == TransferKind::kBorrow;
    flight->of_loans |= borrows || transfer.kind == TransferKind::kLend;
    if (transfer.kind == TransferKind::kSend || borrows) {
      flight->sends.push_back({.transfer = transfer});
      continue;
    }
    LONGSPAN_TRY(const MemoryName data, meeting_.memory->name_of(transfer.data));
    LONGSPAN_TRY(const int slot, mailbox_.take_slot(transfer.peer));
    flight->receives.push_back({.transfer = transfer, .slot = slot, .data = data});
  }
  if (!captured) LONGSPAN_CHECK_OK(follow_last(stream));
  LONGSPAN_CHECK_OK(flight->entry.record(stream));
  LONGSPAN_CHECK_OK(post_receives(*flight, stream));
  if (!flight->sends.empty()) sending_.push_back(flight);
  LONGSPAN_CHECK_OK(progress());
  return Request{static_cast<int64_t>(index)};
}

Stream PeerCommunicator::lane_of(Stream stream, bool captured) const {
  // NOTE: a graph that forks takes several hardware queues. Those of ranks that share a device may
  // be the same, and replays would block each other: there a graph is one chain.
  return captured && meeting_.shares_device ? stream : meeting_.lane.get();
}

Status PeerCommunicator::offer_room(const Flight& flight, Stream stream) {
  for (const Flight::Receive& receive : flight.receives) {
    words_.write(meeting_.flags.room(receive.transfer.peer, rank(), receive.slot), 1);
  }
  return words_.enqueue(stream);
}

Status PeerCommunicator::post_receives(Flight& flight, Stream stream) {
  // NOTE: posted once the write is queued. A wait is only ever queued behind what ends it, so ranks
  // that share a hardware queue cannot block each other. Launches that lend have devices of their
  // own.
  if (!flight.of_loans || !launches_lend()) LONGSPAN_CHECK_OK(offer_room(flight, stream));
  for (const Flight::Receive& receive : flight.receives) {
    mailbox_.post(receive.transfer.peer, receive.slot,
                  {.tag = receive.transfer.tag,
                   .captured = flight.captured,
                   .bytes = receive.transfer.bytes,
                   .data = receive.data});
  }
  return {};
}

Status PeerCommunicator::check_offer(const Flight& flight, const Transfer& send,
                                     const Mailbox::Offer& offer) {
  if (offer.letter.bytes != send.bytes) {
    mailbox_.refuse(send.peer, offer.slot, send.bytes);
    return Error{ErrorCode::kInvalidArgument,
                 mismatch_text({.source = rank(),
                                .sent = send.bytes,
                                .destination = send.peer,
                                .expected = offer.letter.bytes,
                                .tag = send.tag}),
                 kWhere};
  }
  if (offer.letter.captured == flight.captured) return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("rank {} captures a message with tag {} into a graph and rank {} does not; all "
                  "ranks capture the same calls",
                  flight.captured ? rank() : send.peer, send.tag,
                  flight.captured ? send.peer : rank()),
      kWhere};
}

Status PeerCommunicator::copy(Flight& flight, Flight::Send& send, const Mailbox::Offer& offer) {
  const Transfer& t = send.transfer;
  LONGSPAN_CHECK_OK(check_offer(flight, t, offer));
  const Stream lane = flight.lane;
  LONGSPAN_TRY(void* const to, meeting_.memory->reach(t.peer, offer.letter.data, flight.captured));
  if (flight.copies == 0) LONGSPAN_CHECK_OK(flight.entry.hold(lane));
  uint32_t* const room = meeting_.flags.room(rank(), t.peer, offer.slot);
  words_.wait(room);
  words_.write(room, 0);
  LONGSPAN_CHECK_OK(words_.enqueue(lane));
  LONGSPAN_CHECK_OK(cuda::copy_on_device(to, t.data, t.bytes, lane));
  words_.write(meeting_.flags.arrived(rank(), t.peer, offer.slot), 1);
  LONGSPAN_CHECK_OK(words_.enqueue(lane));
  send.queued = true;
  if (++flight.copies == flight.sends.size()) LONGSPAN_CHECK_OK(flight.copied.record(lane));
  mailbox_.take(t.peer, offer.slot);
  return {};
}

Status PeerCommunicator::progress() {
  if (sending_.empty()) return {};
  // One look for all sends: an offer that comes later must not pass an earlier send of its tag.
  mailbox_.look();
  for (Flight* const flight : sending_) {
    for (Flight::Send& send : flight->sends) {
      if (send.queued) continue;
      const Mailbox::Offer offer = mailbox_.find(send.transfer.peer, send.transfer.tag);
      if (offer.slot < 0) continue;
      LONGSPAN_CHECK_OK(flight->of_loans ? borrow(*flight, send, offer)
                                         : copy(*flight, send, offer));
    }
  }
  std::erase_if(sending_,
                [](const Flight* flight) { return flight->copies == flight->sends.size(); });
  return {};
}

}  // namespace longspan::comm
