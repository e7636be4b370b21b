// A call that makes its own scratch memory, on a CUDA device.
#pragma once

#include <cstddef>
#include <functional>

#include "longspan/provider.h"

namespace longspan::cuda {

/// Runs `body` with `device` as the thread's current one.
Status on_device(const Device& device, const std::function<Status()>& body);

/// Runs `body` with memory of the current device and waits for what it queued on `stream`.
Status with_scratch(size_t bytes, Stream stream, const std::function<Status(Workspace)>& body);

}  // namespace longspan::cuda
