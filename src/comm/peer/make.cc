// How callers come by peer communicators.
#include <fmt/format.h>

#include <optional>
#include <thread>
#include <utility>

#include "comm/peer/communicator.h"
#include "longspan/device.h"

namespace longspan {
namespace {

constexpr const char* kWhere = "peer";

using One = Result<std::shared_ptr<Communicator>>;

Status check_device(const Device& device) {
  if (device.is_cuda()) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("device {} is no CUDA device; use the host's communicator", device.name),
               kWhere};
}

/// Of all ranks' errors the one that says most: others only tell that somebody failed.
Error most_telling(const std::vector<std::optional<One>>& ranks) {
  const Error* chosen = nullptr;
  for (const std::optional<One>& rank : ranks) {
    if (rank->ok()) continue;
    if (chosen == nullptr || chosen->code == ErrorCode::kPeerLost) chosen = &rank->error();
  }
  return *chosen;
}

}  // namespace

Result<std::shared_ptr<Communicator>> make_peer_communicator(std::shared_ptr<Communicator> host,
                                                             const Device& device) {
  if (!host || host->on_device()) {
    return Error{ErrorCode::kInvalidArgument,
                 "host is no communicator of host memory; use mpi, threads or callback", kWhere};
  }
  LONGSPAN_CHECK_OK(check_device(device));
  LONGSPAN_TRY(std::shared_ptr<Communicator> made,
               comm::PeerCommunicator::make(std::move(host), device.ordinal));
  return made;
}

Result<std::vector<std::shared_ptr<Communicator>>> make_peer_communicators(
    const Topology& topology, std::span<const Device> devices) {
  if (devices.size() != static_cast<size_t>(topology.ranks())) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} devices for {} ranks; name one for each rank (they may repeat)",
                             devices.size(), topology.ranks()),
                 kWhere};
  }
  for (const Device& device : devices) LONGSPAN_CHECK_OK(check_device(device));
  const std::vector<std::shared_ptr<Communicator>> host = make_threads_communicators(topology);
  std::vector<std::optional<One>> made(devices.size());
  std::vector<std::thread> threads;  // they meet as they would in processes of their own
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back(
        [&, rank] { made[rank] = make_peer_communicator(host[rank], devices[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (const std::optional<One>& one : made) {
    if (!one->ok()) return most_telling(made);
    ranks.push_back(one->value());
  }
  return Result<std::vector<std::shared_ptr<Communicator>>>(std::move(ranks));
}

Result<std::shared_ptr<Communicator>> comm::PeerCommunicator::split(int color, int key) {
  LONGSPAN_TRY(std::shared_ptr<Communicator> part, host_->split(color, key));
  LONGSPAN_TRY(std::shared_ptr<Communicator> made, make(std::move(part), ordinal_));
  return made;
}

}  // namespace longspan
