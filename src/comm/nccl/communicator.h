// Ranks on GPUs of their own, on one host or many: NCCL moves device memory in stream order.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/flight.h"
#include "comm/nccl/handle.h"
#include "comm/nccl/replays.h"
#include "comm/watch.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// NCCL matches messages of a pair of ranks by their order, and all transfers of a rank go over one
/// lane, one start_on after the other. So callers post in the order that check_in_order proves.
class NcclCommunicator final : public Communicator {
 public:
  struct Seat {
    Topology topology;
    int rank = 0;
    int ordinal = 0;  // of the CUDA device
  };

  /// `host` carries the library's own words. Null: they go over the device.
  static Result<std::shared_ptr<Communicator>> make(std::unique_ptr<NcclHandle> handle,
                                                    std::shared_ptr<Communicator> host, Seat seat);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return seat_.rank; }
  int size() const override { return seat_.topology.ranks(); }
  const Topology& topology() const override { return seat_.topology; }

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
  Status health() const override { return watch_.health(); }

  Result<std::shared_ptr<Communicator>> split(int color, int key) override;
  void abandon(const Error& reason) override;

 private:
  /// What the device needs.
  struct Gear {
    std::unique_ptr<NcclHandle> handle;
    std::unique_ptr<NcclReplays> replays;
    cuda::OwnedStream lane;
  };

  NcclCommunicator(Gear gear, std::shared_ptr<Communicator> host, Seat seat);

  /// What is known to be lost without a wait that is late.
  std::optional<Error> lost();
  /// The oldest flight when the device is done with it, else a new one; now the youngest.
  Result<NcclFlight*> take_flight();
  /// In order of (peer, tag, place).
  std::span<const Transfer> sorted(std::span<const Transfer> transfers);

  Gear gear_;
  std::shared_ptr<Communicator> host_;
  bool staged_ = false;  // host_ goes over this communicator
  Seat seat_;
  std::list<NcclFlight> flights_;  // a list: the watch looks at them, so they stay where they are
  int64_t requests_ = 0;
  std::vector<size_t> order_;
  std::vector<Transfer> sorted_;
  std::vector<cuda::Memory> allocations_;
  Watch watch_;
};

}  // namespace longspan::comm
