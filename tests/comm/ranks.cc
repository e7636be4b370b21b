#include "comm/ranks.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace longspan::test {

std::string kind_name(Kind kind) {
  switch (kind) {
    case Kind::kThreads: return "threads";
    case Kind::kCallback: return "callback";
    case Kind::kComposite: return "composite";
  }
  return "";
}

CallbackGroup forward_to(std::shared_ptr<Communicator> inner) {
  CallbackGroup group;
  group.rank = inner->rank();
  group.topology = inner->topology();
  group.start = [inner](std::span<const Transfer> transfers) { return inner->start(transfers); };
  group.wait = [inner](Request request, std::chrono::milliseconds deadline) {
    return inner->wait(request, deadline);
  };
  group.split = [inner](int color, int key) -> Result<CallbackGroup> {
    LONGSPAN_TRY(std::shared_ptr<Communicator> part, inner->split(color, key));
    return forward_to(std::move(part));
  };
  group.allocate = [inner](size_t bytes) { return inner->allocate(bytes); };
  group.release = [inner](void* data) { inner->release(data); };
  group.abandon = [inner](const Error& reason) { inner->abandon(reason); };
  return group;
}

std::vector<std::shared_ptr<Communicator>> make_composites(const Topology& topology) {
  std::vector<std::shared_ptr<Communicator>> ranks = make_threads_communicators(topology);
  for (int node = 0; node < topology.nodes(); ++node) {
    std::vector<size_t> members;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (topology.node_of_rank[rank] == node) members.push_back(rank);
    }
    const auto inner =
        make_threads_communicators(Topology::blocks(static_cast<int>(members.size()), 1));
    for (size_t i = 0; i < members.size(); ++i) {
      auto composite = make_composite_communicator(inner[i], ranks[members[i]], topology);
      EXPECT_TRUE(composite.ok());
      ranks[members[i]] = std::move(composite).value();
    }
  }
  return ranks;
}

std::vector<std::shared_ptr<Communicator>> make_ranks(Kind kind, const Topology& topology) {
  if (kind == Kind::kComposite) return make_composites(topology);
  std::vector<std::shared_ptr<Communicator>> communicators = make_threads_communicators(topology);
  if (kind == Kind::kThreads) return communicators;
  for (auto& communicator : communicators) {
    auto wrapped = make_callback_communicator(forward_to(std::move(communicator)));
    EXPECT_TRUE(wrapped.ok());
    communicator = std::move(wrapped).value();
  }
  return communicators;
}

void run_ranks(std::vector<std::shared_ptr<Communicator>> communicators,
               const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) {
    threads.emplace_back([&body, own = std::move(communicator)]() mutable {
      body(*own);
      own.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace longspan::test
