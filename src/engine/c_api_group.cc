// Devices and communicators of the C interface.
#include "engine/c_api_handles.h"

using longspan::Error;
using longspan::ErrorCode;
using longspan::Status;
using longspan::c_api::any_null;
using longspan::c_api::fail;
using longspan::c_api::guarded;
using longspan::c_api::invalid;

namespace {

Error callback_failed(int32_t code, const char* what) {
  const bool known = code > LONGSPAN_OK && code <= LONGSPAN_INTERNAL;
  return {known ? static_cast<ErrorCode>(code - 1) : ErrorCode::kInternal,
          std::string("the caller's ") + what + " returned code " + std::to_string(code),
          "callback"};
}

longspan::CallbackGroup group_of(const longspan_callbacks& c) {
  longspan::CallbackGroup group;
  group.rank = c.rank;
  group.topology = longspan::Topology::blocks(c.ranks, 1);
  if (c.node_of_rank != nullptr) {
    group.topology.node_of_rank.assign(c.node_of_rank, c.node_of_rank + c.ranks);
  }
  group.start =
      [c](std::span<const longspan::Transfer> transfers) -> longspan::Result<longspan::Request> {
    std::vector<longspan_transfer> list;
    list.reserve(transfers.size());
    for (const longspan::Transfer& t : transfers) {
      list.push_back(
          {t.kind == longspan::TransferKind::kSend ? 1 : 0, t.peer, t.tag, t.data, t.bytes});
    }
    longspan::Request request;
    const int32_t code = c.start(c.context, list.data(), list.size(), &request.id);
    if (code != LONGSPAN_OK) return callback_failed(code, "start");
    return request;
  };
  group.wait = [c](longspan::Request request, std::chrono::milliseconds deadline) -> Status {
    const int32_t code = c.wait(c.context, request.id, deadline.count());
    if (code != LONGSPAN_OK) return callback_failed(code, "wait");
    return {};
  };
  if (c.abandon != nullptr) {
    group.abandon = [c](const Error& reason) {
      c.abandon(c.context, static_cast<int32_t>(reason.code) + 1, reason.message.c_str());
    };
  }
  return group;
}

}  // namespace

int32_t longspan_device_cpu(int32_t threads, longspan_device** device, longspan_error* error) {
  return guarded(error, [&] {
    if (device == nullptr) return fail(invalid("device is NULL"), error);
    if (threads < 0) return fail(invalid("threads is negative; 0 means all cores"), error);
    *device = new longspan_device{longspan::cpu_device(threads)};
    return int32_t{LONGSPAN_OK};
  });
}

void longspan_device_free(longspan_device* device) { delete device; }

int32_t longspan_communicator_threads(int32_t ranks, int32_t nodes,
                                      longspan_communicator** communicators,
                                      longspan_error* error) {
  return guarded(error, [&] {
    if (communicators == nullptr) return fail(invalid("communicators is NULL"), error);
    if (ranks < 1 || nodes < 1 || nodes > ranks) {
      return fail(invalid("ranks and nodes must be at least 1, nodes at most ranks"), error);
    }
    const auto made =
        longspan::make_threads_communicators(longspan::Topology::blocks(ranks, nodes));
    for (size_t i = 0; i < made.size(); ++i) communicators[i] = new longspan_communicator{made[i]};
    return int32_t{LONGSPAN_OK};
  });
}

int32_t longspan_communicator_mpi(int32_t nodes, longspan_communicator** communicator,
                                  longspan_error* error) {
  return guarded(error, [&] {
    if (communicator == nullptr) return fail(invalid("communicator is NULL"), error);
    auto made = longspan::make_mpi_communicator(nodes);
    if (!made.ok()) return fail(made.error(), error);
    *communicator = new longspan_communicator{std::move(*made)};
    return int32_t{LONGSPAN_OK};
  });
}

int32_t longspan_communicator_callback(const longspan_callbacks* callbacks,
                                       longspan_communicator** communicator,
                                       longspan_error* error) {
  return guarded(error, [&] {
    if (any_null({callbacks, communicator})) return fail(invalid("an argument is NULL"), error);
    if (callbacks->start == nullptr || callbacks->wait == nullptr) {
      return fail(invalid("start and wait must be given"), error);
    }
    if (callbacks->ranks < 1) return fail(invalid("ranks must be at least 1"), error);
    auto made = longspan::make_callback_communicator(group_of(*callbacks));
    if (!made.ok()) return fail(made.error(), error);
    *communicator = new longspan_communicator{std::move(*made)};
    return int32_t{LONGSPAN_OK};
  });
}

void longspan_communicator_free(longspan_communicator* communicator) { delete communicator; }
