#include "comm/ranks.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace longspan::test {

std::string kind_name(Kind kind) { return kind == Kind::kThreads ? "threads" : "callback"; }

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

std::vector<std::shared_ptr<Communicator>> make_ranks(Kind kind, const Topology& topology) {
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
