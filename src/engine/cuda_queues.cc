#include <utility>

#include "cuda/ranges.h"
#include "cuda/runtime.h"
#include "engine/queues.h"

namespace longspan {
namespace {

static_assert(kMostQueues == 2);

class CudaQueues final : public Queues {
 public:
  CudaQueues(int ordinal, cuda::OwnedStream second, cuda::Event fork, cuda::Event join)
      : ordinal_(ordinal),
        second_(std::move(second)),
        fork_(std::move(fork)),
        join_(std::move(join)) {}

  Status begin(Stream first, bool several) override {
    first_ = first;
    forked_ = several;
    if (!forked_) return {};
    const cuda::DeviceScope scope(ordinal_);
    LONGSPAN_CHECK_OK(fork_.record(first_));
    return fork_.hold(second_.get());
  }

  Stream stream(int queue) const override { return queue == 0 ? first_ : second_.get(); }

  Status mark(StepId step, int queue) override {
    const cuda::DeviceScope scope(ordinal_);
    while (marks_.size() <= static_cast<size_t>(step)) {
      LONGSPAN_TRY(cuda::Event event, cuda::Event::make());
      marks_.push_back(std::move(event));
    }
    return marks_[static_cast<size_t>(step)].record(stream(queue));
  }

  Status hold(int queue, StepId step) override {
    const cuda::DeviceScope scope(ordinal_);
    return marks_[static_cast<size_t>(step)].hold(stream(queue));
  }

  Status synchronize(int queue) const override {
    const cuda::DeviceScope scope(ordinal_);
    return cuda::synchronize(stream(queue));
  }

  Result<bool> capturing(Stream stream) const override {
    const cuda::DeviceScope scope(ordinal_);
    return cuda::capturing(stream);
  }

  void push_range(std::string_view name) override { cuda::push_range(name.data()); }
  void pop_range() override { cuda::pop_range(); }

  Status end() override {
    if (!forked_) return {};
    const cuda::DeviceScope scope(ordinal_);
    LONGSPAN_CHECK_OK(join_.record(second_.get()));
    return join_.hold(first_);
  }

 private:
  int ordinal_;
  cuda::OwnedStream second_;
  cuda::Event fork_, join_;
  std::vector<cuda::Event> marks_;  // by step
  bool forked_ = false;
};

}  // namespace

Result<std::unique_ptr<Queues>> make_cuda_queues(const Device& device) {
  const cuda::DeviceScope scope(device.ordinal);
  LONGSPAN_TRY(cuda::OwnedStream second, cuda::OwnedStream::make());
  LONGSPAN_TRY(cuda::Event fork, cuda::Event::make());
  LONGSPAN_TRY(cuda::Event join, cuda::Event::make());
  return std::unique_ptr<Queues>(std::make_unique<CudaQueues>(device.ordinal, std::move(second),
                                                              std::move(fork), std::move(join)));
}

}  // namespace longspan
