// Ranks as threads of one process: the side that posts second copies.
#pragma once

#include <memory>

#include "comm/host_memory.h"
#include "comm/threads/hub.h"
#include "longspan/communicator.h"

namespace longspan::comm {

class ThreadsCommunicator final : public Communicator {
 public:
  ThreadsCommunicator(std::shared_ptr<Hub> hub, Topology topology, int rank);
  /// Ranks that still wait for this one get peer_lost.
  ~ThreadsCommunicator() override;
  ThreadsCommunicator(const ThreadsCommunicator&) = delete;
  ThreadsCommunicator& operator=(const ThreadsCommunicator&) = delete;

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return topology_.ranks(); }
  const Topology& topology() const override { return topology_; }

  Result<void*> allocate(size_t bytes) override;
  void release(void* data) override;
  Status register_buffer(void* data, size_t bytes) override;
  void deregister_buffer(void* data) override;

  Result<Request> start(std::span<const Transfer> transfers) override;
  Status wait(Request request, std::chrono::milliseconds deadline) override;
  Result<std::shared_ptr<Communicator>> split(int color, int key) override;
  void abandon(const Error& reason) override;

 private:
  std::shared_ptr<Hub> hub_;
  Topology topology_;
  int rank_;
  int64_t splits_ = 0;  // the same on all ranks, because split is collective
  HostMemory memory_;
};

}  // namespace longspan::comm
