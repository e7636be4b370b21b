#include "comm/peer/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/errors.h"
#include "longspan/device.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "peer";

}  // namespace

Result<std::shared_ptr<PeerCommunicator>> PeerCommunicator::make(std::shared_ptr<PeerHub> hub,
                                                                 std::shared_ptr<Communicator> host,
                                                                 int ordinal) {
  const cuda::DeviceScope scope(ordinal);
  LONGSPAN_TRY(cuda::OwnedStream lane, cuda::OwnedStream::make());
  return std::shared_ptr<PeerCommunicator>(
      new PeerCommunicator(std::move(hub), std::move(host), ordinal, std::move(lane)));
}

PeerCommunicator::~PeerCommunicator() {
  const cuda::DeviceScope scope(ordinal_);
  (void)cuda::synchronize(lane_.get()).ok();  // no copy may outlive its memory
  hub_->leave(rank(), "its communicator was released");
  allocations_.clear();
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

Result<size_t> PeerCommunicator::take_flight(Stream stream) {
  size_t index = 0;
  while (index < flights_.size() && flights_[index].open) ++index;
  if (index == flights_.size()) {
    LONGSPAN_TRY(cuda::Event entry, cuda::Event::make());
    flights_.push_back({.entry = std::move(entry)});
  }
  Flight& flight = flights_[index];
  flight.sends.clear();
  flight.send_peers.clear();
  flight.receives.clear();
  flight.copies = 0;
  flight.open = true;
  LONGSPAN_CHECK_OK(flight.entry.record(stream));
  return index;
}

Status PeerCommunicator::send(Flight& flight, const Transfer& t, Stream stream) {
  LONGSPAN_TRY(PeerMessage * message, hub_->take({rank(), t.peer}));
  LONGSPAN_CHECK_OK(message->ready.record(stream));
  message->data = t.data;
  message->bytes = t.bytes;
  message->tag = t.tag;
  message->copied = false;
  message->seen = false;
  hub_->sent[{rank(), t.peer, t.tag}].push_back(message);
  flight.sends.push_back(message);
  flight.send_peers.push_back(t.peer);
  return {};
}

Result<Request> PeerCommunicator::start_on(std::span<const Transfer> transfers, Stream stream) {
  const cuda::DeviceScope scope(ordinal_);
  const std::lock_guard lock(hub_->mutex);
  LONGSPAN_TRY(const size_t index, take_flight(stream));
  Flight& flight = flights_[index];
  for (const Transfer& transfer : transfers) {
    if (transfer.kind == TransferKind::kSend) {
      LONGSPAN_CHECK_OK(send(flight, transfer, stream));
    } else {
      flight.receives.push_back({.transfer = transfer});
    }
  }
  LONGSPAN_CHECK_OK(progress());
  hub_->changed.notify_all();
  return Request{static_cast<int64_t>(index)};
}

Status PeerCommunicator::copy(Flight& flight, Receive& receive, PeerMessage& message) {
  const Transfer& t = receive.transfer;
  if (message.bytes != t.bytes) {
    return Error{ErrorCode::kInvalidArgument,
                 mismatch_text({.source = t.peer,
                                .sent = message.bytes,
                                .destination = rank(),
                                .expected = t.bytes,
                                .tag = t.tag}),
                 kWhere};
  }
  if (!message.done) {
    LONGSPAN_TRY(cuda::Event done, cuda::Event::make());
    message.done = std::move(done);
  }
  LONGSPAN_CHECK_OK(flight.entry.hold(lane_.get()));
  LONGSPAN_CHECK_OK(message.ready.hold(lane_.get()));
  LONGSPAN_CHECK_OK(cuda::copy_on_device(t.data, message.data, t.bytes, lane_.get()));
  LONGSPAN_CHECK_OK(message.done->record(lane_.get()));
  message.copied = true;
  receive.message = &message;
  ++flight.copies;
  return {};
}

Status PeerCommunicator::progress() {
  for (Flight& flight : flights_) {
    if (!flight.open || flight.copies == flight.receives.size()) continue;
    for (Receive& receive : flight.receives) {
      if (receive.message != nullptr) continue;
      const PeerHub::Route route{receive.transfer.peer, rank(), receive.transfer.tag};
      PeerMessage* const message = hub_->front(route);
      if (message == nullptr) continue;
      hub_->sent[route].pop_front();
      LONGSPAN_CHECK_OK(copy(flight, receive, *message));
      hub_->changed.notify_all();
    }
  }
  return {};
}

bool PeerCommunicator::complete(const Flight& flight) const {
  return flight.copies == flight.receives.size() &&
         std::all_of(flight.sends.begin(), flight.sends.end(),
                     [](const PeerMessage* m) { return m->copied; });
}

std::optional<Error> PeerCommunicator::lost(const Flight& flight) const {
  const auto left = [&](int peer) -> std::optional<Error> {
    const std::optional<std::string>& why = hub_->gone[static_cast<size_t>(peer)];
    if (!why) return std::nullopt;
    return left_peer(peer, *why, kWhere);
  };
  for (const Receive& receive : flight.receives) {
    if (receive.message != nullptr) continue;
    if (auto error = left(receive.transfer.peer)) return error;
  }
  for (size_t i = 0; i < flight.sends.size(); ++i) {
    if (flight.sends[i]->copied) continue;
    if (auto error = left(flight.send_peers[i])) return error;
  }
  return std::nullopt;
}

Error PeerCommunicator::late(const Flight& flight, std::chrono::milliseconds deadline) const {
  const auto open = static_cast<int>(flight.receives.size() - flight.copies);
  for (const Receive& receive : flight.receives) {
    if (receive.message == nullptr) return late_peer(receive.transfer, open, deadline, kWhere);
  }
  for (size_t i = 0; i < flight.sends.size(); ++i) {
    if (flight.sends[i]->copied) continue;
    const Transfer transfer{
        .peer = flight.send_peers[i], .tag = flight.sends[i]->tag, .bytes = flight.sends[i]->bytes};
    return late_peer(transfer, open, deadline, kWhere);
  }
  return {ErrorCode::kInternal, "nothing is late", kWhere};
}

Status PeerCommunicator::wait_on(Request request, Stream stream,
                                 std::chrono::milliseconds deadline) {
  const cuda::DeviceScope scope(ordinal_);
  std::unique_lock lock(hub_->mutex);
  const auto index = static_cast<size_t>(request.id);
  if (request.id < 0 || index >= flights_.size() || !flights_[index].open) {
    return unknown_request(request, kWhere);
  }
  const auto until = std::chrono::steady_clock::now() + deadline;
  while (true) {
    LONGSPAN_CHECK_OK(progress());
    Flight& flight = flights_[index];
    if (complete(flight)) break;
    if (auto error = lost(flight)) return *error;
    if (hub_->changed.wait_until(lock, until) == std::cv_status::timeout) {
      LONGSPAN_CHECK_OK(progress());
      if (!complete(flights_[index])) return late(flights_[index], deadline);
    }
  }
  Flight& flight = flights_[index];
  for (const Receive& receive : flight.receives) {
    LONGSPAN_CHECK_OK(receive.message->done->hold(stream));
  }
  for (PeerMessage* const message : flight.sends) {
    LONGSPAN_CHECK_OK(message->done->hold(stream));
    message->seen = true;
  }
  flight.open = false;
  return {};
}

Result<std::shared_ptr<Communicator>> PeerCommunicator::split(int, int) {
  return Error{ErrorCode::kUnsupported,
               "peer does not split yet; make a communicator for the ranks of each part", kWhere};
}

void PeerCommunicator::abandon(const Error& reason) {
  hub_->leave(rank(), reason.text());
  host_->abandon(reason);
}

}  // namespace longspan::comm

namespace longspan {

Result<std::vector<std::shared_ptr<Communicator>>> make_peer_communicators(
    const Topology& topology, std::span<const Device> devices) {
  if (devices.size() != static_cast<size_t>(topology.ranks())) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} devices for {} ranks; name one for each rank (they may repeat)",
                             devices.size(), topology.ranks()),
                 comm::kWhere};
  }
  for (const Device& a : devices) {
    if (!a.is_cuda()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("device {} is no CUDA device; use the threads communicator", a.name),
                   comm::kWhere};
    }
    for (const Device& b : devices) LONGSPAN_CHECK_OK(cuda::enable_peer(a.ordinal, b.ordinal));
  }
  const auto hub = std::make_shared<comm::PeerHub>(topology.ranks());
  const std::vector<std::shared_ptr<Communicator>> host = make_threads_communicators(topology);
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    LONGSPAN_TRY(std::shared_ptr<Communicator> one,
                 comm::PeerCommunicator::make(hub, host[rank], devices[rank].ordinal));
    ranks.push_back(std::move(one));
  }
  return Result<std::vector<std::shared_ptr<Communicator>>>(std::move(ranks));
}

}  // namespace longspan
