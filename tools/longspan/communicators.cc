#include "communicators.h"

#include <fmt/format.h>

#include <utility>

namespace longspan::tool {
namespace {

using All = std::vector<std::shared_ptr<Communicator>>;

Error usage(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "usage"};
}

MakeRank one_of(All all) {
  return [all = std::move(all)](size_t rank) -> Result<std::shared_ptr<Communicator>> {
    return all[rank];
  };
}

/// Threads of the host, or peers where ranks have GPUs.
Result<All> of_one_process(const Topology& topology, const std::vector<Device>& devices) {
  if (devices.empty()) return make_threads_communicators(topology);
  return make_peer_communicators(topology, devices);
}

MakeRank nccl_ranks(const CommunicatorChoice& choice) {
  return [host = make_threads_communicators(choice.topology), devices = choice.devices](
             size_t rank) { return make_nccl_communicator(host[rank], devices[rank]); };
}

/// One communicator inside each node; by rank.
Result<All> inside_nodes(const CommunicatorChoice& choice) {
  All inner(static_cast<size_t>(choice.topology.ranks()));
  for (int node = 0; node < choice.topology.nodes(); ++node) {
    std::vector<size_t> members;
    std::vector<Device> devices;
    for (size_t rank = 0; rank < inner.size(); ++rank) {
      if (choice.topology.node_of_rank[rank] != node) continue;
      members.push_back(rank);
      if (!choice.devices.empty()) devices.push_back(choice.devices[rank]);
    }
    LONGSPAN_TRY(const All ranks,
                 of_one_process(Topology::blocks(static_cast<int>(members.size()), 1), devices));
    for (size_t i = 0; i < members.size(); ++i) inner[members[i]] = ranks[i];
  }
  return inner;
}

Result<MakeRank> composite_ranks(const CommunicatorChoice& choice) {
  LONGSPAN_TRY(All inner, inside_nodes(choice));
  const MakeRank outer = choice.devices.empty()
                             ? one_of(make_threads_communicators(choice.topology))
                             : nccl_ranks(choice);
  return MakeRank([inner = std::move(inner), outer, topology = choice.topology](
                      size_t rank) -> Result<std::shared_ptr<Communicator>> {
    LONGSPAN_TRY(std::shared_ptr<Communicator> across, outer(rank));
    return make_composite_communicator(inner[rank], std::move(across), topology);
  });
}

}  // namespace

Result<MakeRank> make_ranks(const CommunicatorChoice& choice) {
  const bool gpus = !choice.devices.empty();
  if (choice.name == "composite") return composite_ranks(choice);
  if (choice.name == "threads" || (choice.name == "peer" && gpus)) {
    LONGSPAN_TRY(All all, of_one_process(choice.topology, choice.devices));
    return one_of(std::move(all));
  }
  if (choice.name == "nccl" && gpus) return nccl_ranks(choice);
  return usage(fmt::format("--communicator {}: ranks need GPUs; add --device cuda", choice.name));
}

}  // namespace longspan::tool
