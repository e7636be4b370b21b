#include "comm/callback/communicator.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <utility>

#include "comm/check_transfers.h"

namespace longspan {
namespace comm {
namespace {

constexpr const char* kWhere = "callback";

Error threw(const char* callback, const char* what) {
  return {ErrorCode::kDriver,
          fmt::format("the callback {} threw: {}; callbacks return errors instead", callback, what),
          kWhere};
}

/// Calls `body`; what it throws becomes an error, because no exception crosses the library's edge.
template <class Body>
auto guarded(const char* callback, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& exception) {
    return threw(callback, exception.what());
  } catch (...) {
    return threw(callback, "something that is no std::exception");
  }
}

/// The same for callbacks that return nothing: nobody takes their errors.
template <class Body>
void guarded_silently(Body&& body) {
  try {
    body();
  } catch (...) {
    return;
  }
}

}  // namespace

CallbackCommunicator::CallbackCommunicator(CallbackGroup group) : group_(std::move(group)) {}

CallbackCommunicator::~CallbackCommunicator() {
  for (void* data : allocated_) release_to_group(data);
}

void CallbackCommunicator::release_to_group(void* data) {
  if (group_.release) guarded_silently([&] { group_.release(data); });
}

Result<void*> CallbackCommunicator::allocate(size_t bytes) {
  if (!group_.allocate) return memory_.allocate(bytes, kWhere);
  LONGSPAN_TRY(void* const data, guarded("allocate", [&] { return group_.allocate(bytes); }));
  if (data == nullptr) {
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("the callback allocate returned null for {} bytes", bytes), kWhere};
  }
  if (reinterpret_cast<uintptr_t>(data) % 64 != 0) {
    release_to_group(data);
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("the callback allocate returned {}, which is not aligned to 64 bytes", data),
        kWhere};
  }
  allocated_.insert(data);
  return data;
}

void CallbackCommunicator::release(void* data) {
  if (!group_.allocate) return memory_.release(data);
  if (allocated_.erase(data) == 1) release_to_group(data);
}

Status CallbackCommunicator::register_buffer(void* data, size_t bytes) {
  if (!group_.register_buffer) return {};
  return guarded("register_buffer", [&] { return group_.register_buffer(data, bytes); });
}

void CallbackCommunicator::deregister_buffer(void* data) {
  if (group_.deregister_buffer) guarded_silently([&] { group_.deregister_buffer(data); });
}

Result<Request> CallbackCommunicator::start(std::span<const Transfer> transfers) {
  LONGSPAN_CHECK_OK(check_transfers(transfers, size(), kWhere));
  return guarded("start", [&] { return group_.start(transfers); });
}

Status CallbackCommunicator::wait(Request request, std::chrono::milliseconds deadline) {
  return guarded("wait", [&] { return group_.wait(request, deadline); });
}

Result<std::shared_ptr<Communicator>> CallbackCommunicator::split(int color, int key) {
  if (!group_.split) {
    return Error{ErrorCode::kUnsupported,
                 "this callback group cannot be split; give CallbackGroup::split a function",
                 kWhere};
  }
  LONGSPAN_TRY(CallbackGroup part, guarded("split", [&] { return group_.split(color, key); }));
  return make_callback_communicator(std::move(part));
}

void CallbackCommunicator::abandon(const Error& reason) {
  if (group_.abandon) guarded_silently([&] { group_.abandon(reason); });
}

}  // namespace comm

namespace {

Error bad_group(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), comm::kWhere};
}

}  // namespace

Result<std::shared_ptr<Communicator>> make_callback_communicator(CallbackGroup group) {
  if (!group.start) return bad_group("CallbackGroup::start is empty; it must post transfers");
  if (!group.wait) return bad_group("CallbackGroup::wait is empty; it must wait for transfers");
  if (group.rank < 0 || group.rank >= group.topology.ranks()) {
    return bad_group(fmt::format("rank {} is not in the topology, which has {} ranks", group.rank,
                                 group.topology.ranks()));
  }
  for (const int node : group.topology.node_of_rank) {
    if (node >= 0 && node < group.topology.ranks()) continue;
    return bad_group(
        fmt::format("the topology has node {}; nodes are numbered from 0 and there are "
                    "at most as many as ranks ({})",
                    node, group.topology.ranks()));
  }
  return std::shared_ptr<Communicator>(
      std::make_shared<comm::CallbackCommunicator>(std::move(group)));
}

}  // namespace longspan
