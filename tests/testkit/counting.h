// A communicator that counts what is sent through another one.
#pragma once

#include <memory>

#include "longspan/communicator.h"

namespace longspan::testkit {

class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  /// Bytes of sends started since the last call.
  int64_t take_bytes() { return std::exchange(bytes_, 0); }

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const Topology& topology() const override { return inner_->topology(); }
  Result<void*> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void release(void* data) override { inner_->release(data); }
  Status register_buffer(void* data, size_t bytes) override {
    return inner_->register_buffer(data, bytes);
  }
  void deregister_buffer(void* data) override { inner_->deregister_buffer(data); }
  Result<Request> start(std::span<const Transfer> transfers) override {
    for (const Transfer& t : transfers) {
      if (t.kind == TransferKind::kSend) bytes_ += static_cast<int64_t>(t.bytes);
    }
    return inner_->start(transfers);
  }
  Status wait(Request request, std::chrono::milliseconds deadline) override {
    return inner_->wait(request, deadline);
  }
  Result<std::shared_ptr<Communicator>> split(int color, int key) override {
    return inner_->split(color, key);
  }
  void abandon(const Error& reason) override { inner_->abandon(reason); }

 private:
  std::shared_ptr<Communicator> inner_;
  int64_t bytes_ = 0;
};

}  // namespace longspan::testkit
