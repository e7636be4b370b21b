// Runs a body once per rank, ranks as threads, over each communicator that can do so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "longspan/communicator.h"

namespace longspan::test {

enum class Kind { kThreads, kCallback, kComposite };

std::string kind_name(Kind kind);

/// Communicators of all ranks, one each.
std::vector<std::shared_ptr<Communicator>> make_ranks(Kind kind, const Topology& topology);

/// Composites of threads inside each node, and threads over all ranks.
std::vector<std::shared_ptr<Communicator>> make_composites(const Topology& topology);

/// A callback group that hands everything on to `inner`.
CallbackGroup forward_to(std::shared_ptr<Communicator> inner);

/// Calls body(communicator) on a thread for each rank. A rank's communicator is destroyed when its
/// body returns.
void run_ranks(std::vector<std::shared_ptr<Communicator>> communicators,
               const std::function<void(Communicator&)>& body);

}  // namespace longspan::test
