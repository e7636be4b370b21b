// Time on the device that computes, and calls recorded to be replayed.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "longspan/device.h"

namespace longspan::tool {

/// Work that was recorded once and can be queued again as a whole.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual Status replay() = 0;
};

/// Used by one thread at a time.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  static Result<std::unique_ptr<DeviceClock>> make(const Device& device);

  /// Where the work to be timed is queued.
  virtual Stream stream() const = 0;
  /// Marks this place in the stream; on the host: now.
  virtual Status mark() = 0;
  /// Waits for the last mark and forgets all. Microseconds between one mark and the next.
  virtual Result<std::vector<double>> laps() = 0;
  /// Records what `queue` queues on stream() as a CUDA graph. unsupported on the host.
  virtual Result<std::unique_ptr<Recording>> record(const std::function<Status()>& queue) = 0;
};

/// unsupported when built without CUDA.
Result<std::unique_ptr<DeviceClock>> make_cuda_clock(const Device& device);

}  // namespace longspan::tool
