// Communicators for Python: threads of the process, the caller's own transfers, GPUs.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "errors.h"
#include "exports.h"
#include "handles.h"

namespace longspan::python {
namespace {

using ffi::Array;
using ffi::Bytes;
using ffi::Function;
using ffi::String;

Topology topology_of(const Array<int64_t>& node_of_rank) {
  Topology topology;
  for (const int64_t node : node_of_rank) topology.node_of_rank.push_back(static_cast<int>(node));
  return topology;
}

Array<CommunicatorRef> threads_communicators(int64_t ranks, int64_t nodes) {
  if (ranks < 1 || nodes < 1 || nodes > ranks) {
    raise({ErrorCode::kInvalidArgument,
           "ranks is " + std::to_string(ranks) + " and nodes " + std::to_string(nodes) +
               "; both are at least 1, nodes at most ranks",
           "python"});
  }
  Array<CommunicatorRef> result;
  for (auto& made : make_threads_communicators(
           Topology::blocks(static_cast<int>(ranks), static_cast<int>(nodes)))) {
    result.push_back(CommunicatorRef(std::move(made)));
  }
  return result;
}

/// A transfer for Python: (sends, peer, tag, address, bytes).
Array<ffi::Any> transfer_for_python(const Transfer& transfer) {
  return {transfer.kind == TransferKind::kSend, int64_t{transfer.peer}, int64_t{transfer.tag},
          reinterpret_cast<int64_t>(transfer.data), static_cast<int64_t>(transfer.bytes)};
}

/// `start` takes a list of transfers and returns their number; `wait` takes the number and
/// milliseconds and returns why a peer is lost, or an empty text.
CommunicatorRef callback_communicator(int64_t rank, const Array<int64_t>& node_of_rank,
                                      const Function& start, const Function& wait) {
  CallbackGroup group{.rank = static_cast<int>(rank), .topology = topology_of(node_of_rank)};
  group.start = [start](std::span<const Transfer> transfers) -> Result<Request> {
    Array<Array<ffi::Any>> list;
    for (const Transfer& transfer : transfers) list.push_back(transfer_for_python(transfer));
    return Request{start(list).cast<int64_t>()};
  };
  group.wait = [wait](Request request, std::chrono::milliseconds deadline) -> Status {
    const String lost = wait(request.id, static_cast<int64_t>(deadline.count())).cast<String>();
    if (lost.empty()) return {};
    return Error{ErrorCode::kPeerLost, lost, "python"};
  };
  return CommunicatorRef(value_or_raise(make_callback_communicator(std::move(group))));
}

/// Collective over `host`, whose ranks are on one host.
CommunicatorRef peer_communicator(const CommunicatorRef& host, int64_t ordinal) {
  const Device device = value_or_raise(cuda_device(static_cast<int>(ordinal)));
  return CommunicatorRef(value_or_raise(make_peer_communicator(host->communicator, device)));
}

/// Collective over `host`.
CommunicatorRef nccl_communicator(const CommunicatorRef& host, int64_t ordinal) {
  const Device device = value_or_raise(cuda_device(static_cast<int>(ordinal)));
  return CommunicatorRef(value_or_raise(make_nccl_communicator(host->communicator, device)));
}

}  // namespace
}  // namespace longspan::python

LONGSPAN_EXPORT(threads_communicators)
LONGSPAN_EXPORT(callback_communicator)
LONGSPAN_EXPORT(peer_communicator)
LONGSPAN_EXPORT(nccl_communicator)
