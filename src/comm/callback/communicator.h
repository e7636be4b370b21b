// A process group of the caller's own behind the Communicator interface.
#pragma once

#include <memory>
#include <unordered_set>

#include "comm/host_memory.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// Checks what goes in and out of the callbacks; exceptions that they throw become errors.
class CallbackCommunicator final : public Communicator {
 public:
  explicit CallbackCommunicator(CallbackGroup group);
  ~CallbackCommunicator() override;
  CallbackCommunicator(const CallbackCommunicator&) = delete;
  CallbackCommunicator& operator=(const CallbackCommunicator&) = delete;

  std::string_view name() const override { return "callback"; }
  int rank() const override { return group_.rank; }
  int size() const override { return group_.topology.ranks(); }
  const Topology& topology() const override { return group_.topology; }

  Result<void*> allocate(size_t bytes) override;
  void release(void* data) override;
  Status register_buffer(void* data, size_t bytes) override;
  void deregister_buffer(void* data) override;

  Result<Request> start(std::span<const Transfer> transfers) override;
  Status wait(Request request, std::chrono::milliseconds deadline) override;
  Result<std::shared_ptr<Communicator>> split(int color, int key) override;
  void abandon(const Error& reason) override;

 private:
  void release_to_group(void* data);

  CallbackGroup group_;
  HostMemory memory_;                    // where the group brings no allocate
  std::unordered_set<void*> allocated_;  // by the group
};

}  // namespace longspan::comm
