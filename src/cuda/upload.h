// Constants of a call on its device.
#pragma once

#include <cstddef>
#include <memory>

#include "longspan/device.h"

namespace longspan::cuda {

/// A copy of host memory on a CUDA device; unsupported when built without CUDA.
Result<std::shared_ptr<void>> upload(const Device& device, const void* host, size_t bytes);

}  // namespace longspan::cuda
