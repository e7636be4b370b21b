#include "comm/threads/hub.h"

#include <cstring>

#include "comm/deadline.h"
#include "comm/errors.h"

namespace longspan::comm {
namespace {

constexpr const char* kWhere = "threads";

}  // namespace

Hub::Hub(int ranks)
    : seats_(static_cast<size_t>(ranks)),
      pending_(static_cast<size_t>(ranks) * static_cast<size_t>(ranks)) {}

Result<Request> Hub::start(int rank, std::span<const Transfer> transfers) {
  Op* copies = nullptr;
  Request request;
  {
    const std::lock_guard lock(mutex_);
    Seat& own = seat(rank);
    if (own.broken) return *own.broken;
    Flight& flight = take_flight(own);
    for (const Transfer& transfer : transfers) {
      copies = post(take_op(own, flight, transfer, rank), copies);
    }
    request.id = flight.generation << 32 | flight.index;
  }
  if (copies != nullptr) copy(copies);
  return request;
}

void Hub::copy(Op* copies) {
  for (const Op* op = copies; op != nullptr; op = op->next_copy) {
    const bool sends = op->transfer.kind == TransferKind::kSend;
    const Op& source = sends ? *op : *op->partner;
    const Op& destination = sends ? *op->partner : *op;
    if (source.transfer.bytes == 0) continue;
    std::memmove(destination.transfer.data, source.transfer.data, source.transfer.bytes);
  }
  const std::lock_guard lock(mutex_);
  while (copies != nullptr) {
    Op& op = *copies;
    copies = op.next_copy;
    Op& partner = *op.partner;
    --seat(op.owner).copying;
    --seat(partner.owner).copying;
    finish(op);
    finish(partner);
  }
}

Status Hub::wait(int rank, Request request, std::chrono::milliseconds deadline) {
  const auto end = deadline_after(deadline);
  std::unique_lock lock(mutex_);
  Seat& own = seat(rank);
  if (own.broken) return *own.broken;
  Flight* const flight = find_flight(own, request);
  if (flight == nullptr) return unknown_request(request, kWhere);
  const auto settled = [&] { return flight->error.has_value() || flight->open == 0; };
  if (!own.changed.wait_until(lock, end, settled)) {
    flight->error = missing(*flight, deadline);
    // Without an error the rest is being copied at this moment: nobody is late.
    if (!flight->error) own.changed.wait(lock, settled);
  }
  if (!flight->error) {
    recycle(own, *flight);
    return {};
  }
  own.broken = flight->error;
  withdraw(own);
  own.changed.wait(lock, [&] { return own.copying == 0; });
  return *own.broken;
}

void Hub::leave(int rank, const std::string& reason) {
  std::unique_lock lock(mutex_);
  Seat& own = seat(rank);
  if (own.gone) return;
  own.gone = reason;
  const Error error = left_peer(rank, reason, kWhere);
  if (!own.broken) own.broken = error;
  withdraw(own);
  const int ranks = static_cast<int>(seats_.size());
  for (int other = 0; other < ranks; ++other) {
    while (Op* op = pending(other, rank).first) fail(*op, error);
    while (Op* op = pending(rank, other).first) fail(*op, error);
  }
  own.changed.wait(lock, [&] { return own.copying == 0; });
}

std::shared_ptr<Hub> Hub::part(int64_t round, int color, int members) {
  const std::lock_guard lock(mutex_);
  const auto key = std::make_pair(round, color);
  auto& [hub, asked] = parts_[key];
  if (!hub) hub = std::make_shared<Hub>(members);
  const std::shared_ptr<Hub> result = hub;
  if (++asked == members) parts_.erase(key);
  return result;
}

Hub::Pending& Hub::pending(int source, int destination) {
  return pending_[static_cast<size_t>(source) * seats_.size() + static_cast<size_t>(destination)];
}

Hub::Pending& Hub::pending(const Op& op) {
  return op.transfer.kind == TransferKind::kSend ? pending(op.owner, op.transfer.peer)
                                                 : pending(op.transfer.peer, op.owner);
}

Hub::Flight& Hub::take_flight(Seat& seat) {
  if (seat.free_flights == nullptr) {
    Flight& added = seat.flights.emplace_back();
    added.index = static_cast<int64_t>(seat.flights.size()) - 1;
    seat.free_flights = &added;
  }
  Flight& flight = *seat.free_flights;
  seat.free_flights = flight.next_free;
  flight.next_free = nullptr;
  // Below 2^31, so that the request's number stays positive; odd numbers meet odd ones again.
  flight.generation = (flight.generation + 1) & 0x7fffffff;
  return flight;
}

Hub::Flight* Hub::find_flight(Seat& seat, Request request) {
  const int64_t index = request.id & 0xffffffff;
  if (request.id < 0 || index >= static_cast<int64_t>(seat.flights.size())) return nullptr;
  Flight& flight = seat.flights[static_cast<size_t>(index)];
  const bool in_use = flight.generation % 2 == 1;
  return in_use && flight.generation == request.id >> 32 ? &flight : nullptr;
}

void Hub::recycle(Seat& seat, Flight& flight) {
  while (Op* op = flight.first) {
    flight.first = op->sibling;
    op->sibling = seat.free_ops;
    seat.free_ops = op;
  }
  flight.generation = (flight.generation + 1) & 0x7fffffff;
  flight.next_free = seat.free_flights;
  seat.free_flights = &flight;
}

Hub::Op& Hub::take_op(Seat& seat, Flight& flight, const Transfer& transfer, int owner) {
  if (seat.free_ops == nullptr) seat.free_ops = &seat.ops.emplace_back();
  Op& op = *seat.free_ops;
  seat.free_ops = op.sibling;
  op = {.transfer = transfer, .owner = owner, .state = State::kPending, .flight = &flight};
  op.sibling = flight.first;
  flight.first = &op;
  ++flight.open;
  return op;
}

Hub::Op* Hub::post(Op& op, Op* copies) {
  const Seat& peer = seat(op.transfer.peer);
  Op* const match = take_match(op);
  if (match == nullptr && peer.gone) {
    fail(op, left_peer(op.transfer.peer, *peer.gone, kWhere));
    return copies;
  }
  if (match == nullptr) {
    Pending& list = pending(op);
    (list.last == nullptr ? list.first : list.last->next) = &op;
    list.last = &op;
    return copies;
  }
  if (match->transfer.bytes != op.transfer.bytes) {
    const Error error = size_mismatch(op, *match);
    fail(op, error);
    fail(*match, error);
    return copies;
  }
  op.partner = match;
  match->partner = &op;
  for (Op* side : {&op, match}) {
    side->state = State::kCopying;
    ++seat(side->owner).copying;
  }
  op.next_copy = copies;
  return &op;
}

Error Hub::size_mismatch(const Op& op, const Op& match) {
  const bool sends = op.transfer.kind == TransferKind::kSend;
  const Op& from = sends ? op : match;
  const Op& to = sends ? match : op;
  const Sizes sizes = {.source = from.owner,
                       .sent = from.transfer.bytes,
                       .destination = to.owner,
                       .expected = to.transfer.bytes,
                       .tag = op.transfer.tag};
  return {ErrorCode::kInvalidArgument, mismatch_text(sizes), kWhere};
}

Hub::Op* Hub::take_match(const Op& op) {
  for (Op* other = pending(op).first; other != nullptr; other = other->next) {
    if (other->transfer.kind == op.transfer.kind || other->transfer.tag != op.transfer.tag)
      continue;
    unlink(*other);
    return other;
  }
  return nullptr;
}

void Hub::unlink(Op& op) {
  Pending& list = pending(op);
  Op* before = nullptr;
  Op* at = list.first;
  while (at != nullptr && at != &op) {
    before = at;
    at = at->next;
  }
  if (at == nullptr) return;
  (before == nullptr ? list.first : before->next) = op.next;
  if (list.last == &op) list.last = before;
  op.next = nullptr;
}

void Hub::finish(Op& op) {
  op.state = State::kDone;
  --op.flight->open;
  Seat& owner = seat(op.owner);
  if (op.flight->open == 0 || owner.copying == 0) owner.changed.notify_one();
}

void Hub::fail(Op& op, const Error& error) {
  unlink(op);
  if (!op.flight->error) op.flight->error = error;
  finish(op);
  seat(op.owner).changed.notify_one();
}

void Hub::withdraw(Seat& seat) {
  for (Op& op : seat.ops) {
    if (op.state != State::kPending) continue;
    unlink(op);
    finish(op);
  }
}

std::optional<Error> Hub::missing(const Flight& flight, std::chrono::milliseconds deadline) const {
  int open = 0;
  const Op* earliest = nullptr;  // siblings are linked last to first
  for (const Op* op = flight.first; op != nullptr; op = op->sibling) {
    if (op->state != State::kPending) continue;
    ++open;
    earliest = op;
  }
  if (earliest == nullptr) return std::nullopt;
  return late_peer(earliest->transfer, open, deadline, kWhere);
}

}  // namespace longspan::comm
