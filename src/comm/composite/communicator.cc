#include "comm/composite/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "comm/check_transfers.h"
#include "comm/deadline.h"
#include "comm/errors.h"
#include "comm/split_group.h"

namespace longspan {
namespace comm {
namespace {

constexpr const char* kWhere = "composite";

std::chrono::milliseconds time_until(std::chrono::steady_clock::time_point end) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds::zero());
}

}  // namespace

CompositeCommunicator::CompositeCommunicator(std::shared_ptr<Communicator> inner,
                                             std::shared_ptr<Communicator> outer, Topology topology,
                                             std::vector<int> places)
    : inner_(std::move(inner)),
      outer_(std::move(outer)),
      topology_(std::move(topology)),
      places_(std::move(places)),
      name_(fmt::format("composite of {} and {}", inner_->name(), outer_->name())) {}

Result<void*> CompositeCommunicator::allocate(size_t bytes) {
  LONGSPAN_TRY(void* const data, inner_->allocate(bytes));
  const Status registered = outer_->register_buffer(data, bytes);
  if (registered.ok()) return data;
  inner_->release(data);
  return registered.error();
}

void CompositeCommunicator::release(void* data) {
  if (data != nullptr) outer_->deregister_buffer(data);
  inner_->release(data);
}

Status CompositeCommunicator::register_buffer(void* data, size_t bytes) {
  LONGSPAN_CHECK_OK(inner_->register_buffer(data, bytes));
  const Status registered = outer_->register_buffer(data, bytes);
  if (!registered.ok()) inner_->deregister_buffer(data);
  return registered;
}

void CompositeCommunicator::deregister_buffer(void* data) {
  outer_->deregister_buffer(data);
  inner_->deregister_buffer(data);
}

Status CompositeCommunicator::explained(Status status) const {
  if (status.ok()) return status;
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (places_[static_cast<size_t>(rank)] >= 0) ranks.push_back(rank);
  }
  if (ranks.back() + 1 == static_cast<int>(ranks.size())) return status;  // they count alike
  Error error = status.error();
  error.message = fmt::format("{} (counted among the ranks {} of the node)", error.message,
                              fmt::join(ranks, ", "));
  return error;
}

template <class Start>
Result<Request> CompositeCommunicator::start_both(std::span<const Transfer> transfers,
                                                  const Start& start) {
  LONGSPAN_CHECK_OK(check_transfers(transfers, size(), kWhere));
  inner_transfers_.clear();
  outer_transfers_.clear();
  for (const Transfer& transfer : transfers) {
    const int place = places_[static_cast<size_t>(transfer.peer)];
    if (place < 0) {
      outer_transfers_.push_back(transfer);
    } else {
      inner_transfers_.push_back(transfer);
      inner_transfers_.back().peer = place;
    }
  }
  Request inner, outer;
  if (!outer_transfers_.empty()) {
    LONGSPAN_TRY(outer, start(*outer_, outer_transfers_));
  }
  if (!inner_transfers_.empty()) {
    auto started = start(*inner_, inner_transfers_);
    if (!started.ok()) return explained(started.error()).error();
    inner = *started;
  }
  auto flight = std::find_if(flights_.begin(), flights_.end(),
                             [](const Flight& candidate) { return !candidate.open; });
  if (flight == flights_.end()) flight = flights_.insert(flight, Flight());
  *flight = {.inner = inner, .outer = outer, .open = true};
  return Request{flight - flights_.begin()};
}

template <class Wait>
Status CompositeCommunicator::wait_both(Request request, std::chrono::milliseconds deadline,
                                        const Wait& wait) {
  const bool known = request.id >= 0 && request.id < static_cast<int64_t>(flights_.size()) &&
                     flights_[static_cast<size_t>(request.id)].open;
  if (!known) return unknown_request(request, kWhere);
  Flight& flight = flights_[static_cast<size_t>(request.id)];
  flight.open = false;
  const auto end = deadline_after(deadline);
  // The outer one first: between processes transfers may move only while both sides wait, and
  // inside a node they need nobody's wait.
  if (flight.outer.id >= 0) LONGSPAN_CHECK_OK(wait(*outer_, flight.outer, deadline));
  if (flight.inner.id < 0) return {};
  return explained(wait(*inner_, flight.inner, time_until(end)));
}

Result<Request> CompositeCommunicator::start(std::span<const Transfer> transfers) {
  return start_both(transfers, [](Communicator& part, std::span<const Transfer> of_part) {
    return part.start(of_part);
  });
}

Status CompositeCommunicator::wait(Request request, std::chrono::milliseconds deadline) {
  return wait_both(request, deadline,
                   [](Communicator& part, Request of_part, std::chrono::milliseconds left) {
                     return part.wait(of_part, left);
                   });
}

Result<Request> CompositeCommunicator::start_on(std::span<const Transfer> transfers,
                                                Stream stream) {
  return start_both(transfers, [stream](Communicator& part, std::span<const Transfer> of_part) {
    return part.start_on(of_part, stream);
  });
}

Status CompositeCommunicator::wait_on(Request request, Stream stream,
                                      std::chrono::milliseconds deadline) {
  return wait_both(request, deadline,
                   [stream](Communicator& part, Request of_part, std::chrono::milliseconds left) {
                     return part.wait_on(of_part, stream, left);
                   });
}

Status CompositeCommunicator::health() const {
  LONGSPAN_CHECK_OK(outer_->health());
  return explained(inner_->health());
}

Result<std::shared_ptr<Communicator>> CompositeCommunicator::split(int color, int key) {
  LONGSPAN_TRY(SplitGroup group, agree_on_split(*this, color, key));
  LONGSPAN_TRY(std::shared_ptr<Communicator> inner, inner_->split(color, key));
  LONGSPAN_TRY(std::shared_ptr<Communicator> outer, outer_->split(color, key));
  return make_composite_communicator(std::move(inner), std::move(outer), std::move(group.topology));
}

void CompositeCommunicator::abandon(const Error& reason) {
  inner_->abandon(reason);
  outer_->abandon(reason);
}

}  // namespace comm

namespace {

Error does_not_fit(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "composite"};
}

}  // namespace

Result<std::shared_ptr<Communicator>> make_composite_communicator(
    std::shared_ptr<Communicator> inner, std::shared_ptr<Communicator> outer, Topology topology) {
  if (inner == nullptr || outer == nullptr) return does_not_fit("a communicator is null");
  if (outer->size() != topology.ranks()) {
    return does_not_fit(fmt::format("the outer communicator has {} ranks and the topology {}",
                                    outer->size(), topology.ranks()));
  }
  if (inner->on_device() != outer->on_device()) {
    return does_not_fit(fmt::format("{} moves {} memory and {} does not; both must move the same",
                                    inner->name(), inner->on_device() ? "device" : "host",
                                    outer->name()));
  }
  const auto node = [&](int rank) { return topology.node_of_rank[static_cast<size_t>(rank)]; };
  std::vector<int> places(static_cast<size_t>(topology.ranks()), -1);
  int members = 0;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    if (node(rank) == node(outer->rank())) places[static_cast<size_t>(rank)] = members++;
  }
  const int place = places[static_cast<size_t>(outer->rank())];
  if (inner->size() != members || inner->rank() != place) {
    return does_not_fit(
        fmt::format("rank {} is {} of {} on its node, and the inner communicator says {} of {}",
                    outer->rank(), place, members, inner->rank(), inner->size()));
  }
  return std::shared_ptr<Communicator>(std::make_shared<comm::CompositeCommunicator>(
      std::move(inner), std::move(outer), std::move(topology), std::move(places)));
}

}  // namespace longspan
