// Host memory over a communicator that moves device memory, for the few words of cold calls.
#pragma once

#include <map>
#include <vector>

#include "comm/host_memory.h"
#include "cuda/runtime.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// Copies to and from device memory around each transfer. What the device communicator says about
/// the order of messages holds here too.
class Staging final : public Communicator {
 public:
  /// `device` outlives this.
  static Result<std::shared_ptr<Communicator>> make(Communicator& device, int ordinal);

  std::string_view name() const override { return "staging"; }
  int rank() const override { return device_.rank(); }
  int size() const override { return device_.size(); }
  const Topology& topology() const override { return device_.topology(); }

  Result<void*> allocate(size_t bytes) override { return memory_.allocate(bytes, "staging"); }
  void release(void* data) override { memory_.release(data); }
  Status register_buffer(void*, size_t) override { return {}; }
  void deregister_buffer(void*) override {}

  Result<Request> start(std::span<const Transfer> transfers) override;
  Status wait(Request request, std::chrono::milliseconds deadline) override;
  /// unsupported: the device communicator is what can be split.
  Result<std::shared_ptr<Communicator>> split(int color, int key) override;
  void abandon(const Error&) override {}

 private:
  struct Flight {
    std::vector<Transfer> transfers;  // as given: host memory
    cuda::Memory staged;              // of all of them, one behind the other
    Request request;
  };

  Staging(Communicator& device, int ordinal, cuda::OwnedStream stream, cuda::Event done)
      : device_(device), ordinal_(ordinal), stream_(std::move(stream)), done_(std::move(done)) {}

  Status finish(const Flight& flight, std::chrono::milliseconds deadline);

  Communicator& device_;
  int ordinal_;
  cuda::OwnedStream stream_;
  cuda::Event done_;
  HostMemory memory_;
  int64_t requests_ = 0;
  std::map<int64_t, Flight> flights_;
};

}  // namespace longspan::comm
