// The queues of compute steps, as streams of the call's device.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "longspan/device.h"
#include "longspan/schedule.h"
#include "longspan/tensor.h"

namespace longspan {

/// Of one executor, used from run to run. This class has a single stream, on which the order of
/// the list is the order of all steps: for CPUs, and for ranks that share a device.
class Queues {
 public:
  virtual ~Queues() = default;
  /// The other queues, where there are `several`, go on from where `first` is.
  virtual Status begin(Stream first, bool /*several*/) {
    first_ = first;
    return {};
  }
  virtual Stream stream(int) const { return first_; }
  /// Remembers where the queue is, as the end of the step.
  virtual Status mark(StepId, int) { return {}; }
  /// The queue goes on when the marked step is done.
  virtual Status hold(int, StepId) { return {}; }
  /// The host waits until the device has done all that the queue holds.
  virtual Status synchronize(int) const { return {}; }
  /// Whether the stream is being captured into a graph.
  virtual Result<bool> capturing(Stream) const { return false; }
  /// What a profiler shows the host to be doing until pop_range(). `name` ends in a 0.
  virtual void push_range(std::string_view /*name*/) {}
  virtual void pop_range() {}
  /// `first` goes on when all queues are through.
  virtual Status end() { return {}; }

 protected:
  Stream first_;
};

/// `alone`: no other rank shares the device.
Result<std::unique_ptr<Queues>> make_queues(const Device& device, bool alone);
/// unsupported when built without CUDA.
Result<std::unique_ptr<Queues>> make_cuda_queues(const Device& device);

/// Of every step of a schedule with several queues, whether a step of another queue waits for it.
/// Empty where there is one queue.
std::vector<bool> awaited_elsewhere(const Schedule& schedule);

}  // namespace longspan
