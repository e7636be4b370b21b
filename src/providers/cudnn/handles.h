// cuDNN handles, lent to one thread at a time.
#pragma once

#include <utility>

#include "longspan/status.h"

namespace longspan::cudnn {

/// A handle of one device, returned to the pool when the lease ends. Handles are never destroyed:
/// at the end of a process the driver may be gone before they are.
class HandleLease {
 public:
  /// The device must be current. Makes a handle (milliseconds) where no idle one is left.
  static Result<HandleLease> take(int ordinal);
  HandleLease(HandleLease&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), ordinal_(other.ordinal_) {}
  HandleLease& operator=(HandleLease&&) = delete;
  ~HandleLease();

  void* get() const { return handle_; }  // a cudnnHandle_t

 private:
  HandleLease(void* handle, int ordinal) : handle_(handle), ordinal_(ordinal) {}
  void* handle_ = nullptr;
  int ordinal_ = 0;
};

}  // namespace longspan::cudnn
