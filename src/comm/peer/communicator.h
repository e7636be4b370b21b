// Ranks of one process on CUDA devices: receivers pull with copy engines, in stream order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/peer/hub.h"

namespace longspan::comm {

class PeerCommunicator final : public Communicator {
 public:
  /// `host` carries the library's own words at cold calls.
  static Result<std::shared_ptr<PeerCommunicator>> make(std::shared_ptr<PeerHub> hub,
                                                        std::shared_ptr<Communicator> host,
                                                        int ordinal);
  ~PeerCommunicator() override;

  std::string_view name() const override { return "peer"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const Topology& topology() const override { return host_->topology(); }

  Result<void*> allocate(size_t bytes) override;
  void release(void* data) override;
  Status register_buffer(void*, size_t) override { return {}; }
  void deregister_buffer(void*) override {}

  Result<Request> start(std::span<const Transfer> transfers) override {
    return host_->start(transfers);
  }
  Status wait(Request request, std::chrono::milliseconds deadline) override {
    return host_->wait(request, deadline);
  }
  bool on_device() const override { return true; }
  Result<Request> start_on(std::span<const Transfer> transfers, Stream stream) override;
  Status wait_on(Request request, Stream stream, std::chrono::milliseconds deadline) override;

  Result<std::shared_ptr<Communicator>> split(int color, int key) override;
  void abandon(const Error& reason) override;

 private:
  struct Receive {
    Transfer transfer;
    PeerMessage* message = nullptr;  // once its copy is queued
  };
  /// The transfers of one start_on; reused.
  struct Flight {
    cuda::Event entry;  // where the stream was
    std::vector<PeerMessage*> sends;
    std::vector<int> send_peers;
    std::vector<Receive> receives;
    size_t copies = 0;  // receives whose copies are queued
    bool open = false;
  };

  PeerCommunicator(std::shared_ptr<PeerHub> hub, std::shared_ptr<Communicator> host, int ordinal,
                   cuda::OwnedStream lane)
      : hub_(std::move(hub)), host_(std::move(host)), ordinal_(ordinal), lane_(std::move(lane)) {}

  Result<size_t> take_flight(Stream stream);
  Status send(Flight& flight, const Transfer& transfer, Stream stream);
  /// Queues the copies of all open receives whose data has been sent. Needs the hub's lock.
  Status progress();
  Status copy(Flight& flight, Receive& receive, PeerMessage& message);
  bool complete(const Flight& flight) const;
  /// The peer that a flight waits for and that has left, as an error. Needs the hub's lock.
  std::optional<Error> lost(const Flight& flight) const;
  Error late(const Flight& flight, std::chrono::milliseconds deadline) const;

  std::shared_ptr<PeerHub> hub_;
  std::shared_ptr<Communicator> host_;
  int ordinal_;
  cuda::OwnedStream lane_;  // of the copies
  std::vector<Flight> flights_;
  std::vector<cuda::Memory> allocations_;
};

}  // namespace longspan::comm
