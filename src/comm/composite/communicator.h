// Ranks of one node over one communicator, all others over another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "longspan/communicator.h"

namespace longspan::comm {

class CompositeCommunicator final : public Communicator {
 public:
  /// `places`: of each rank of this one's node its rank in `inner`; -1 for all others.
  CompositeCommunicator(std::shared_ptr<Communicator> inner, std::shared_ptr<Communicator> outer,
                        Topology topology, std::vector<int> places);

  std::string_view name() const override { return name_; }
  int rank() const override { return outer_->rank(); }
  int size() const override { return outer_->size(); }
  const Topology& topology() const override { return topology_; }

  Result<void*> allocate(size_t bytes) override;
  void release(void* data) override;
  Status register_buffer(void* data, size_t bytes) override;
  void deregister_buffer(void* data) override;

  Result<Request> start(std::span<const Transfer> transfers) override;
  Status wait(Request request, std::chrono::milliseconds deadline) override;
  bool on_device() const override { return outer_->on_device(); }
  bool has_own_device() const override { return inner_->has_own_device(); }
  Result<Request> start_on(std::span<const Transfer> transfers, Stream stream) override;
  Status wait_on(Request request, Stream stream, std::chrono::milliseconds deadline) override;
  Status health() const override;

  Result<std::shared_ptr<Communicator>> split(int color, int key) override;
  void abandon(const Error& reason) override;

 private:
  /// The two halves of a request; the id is -1 where a half has no transfers. Reused.
  struct Flight {
    Request inner, outer;
    bool open = false;
  };

  template <class Start>
  Result<Request> start_both(std::span<const Transfer> transfers, const Start& start);
  template <class Wait>
  Status wait_both(Request request, std::chrono::milliseconds deadline, const Wait& wait);
  /// Errors of `inner` count its own ranks: says which ones these are.
  Status explained(Status status) const;

  std::shared_ptr<Communicator> inner_;
  std::shared_ptr<Communicator> outer_;
  Topology topology_;
  std::vector<int> places_;
  std::string name_;
  std::vector<Flight> flights_;
  std::vector<Transfer> inner_transfers_, outer_transfers_;  // of the start in progress
};

}  // namespace longspan::comm
