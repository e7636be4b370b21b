// Which GPU a device is, whatever number a process has given it.
#pragma once

#include <array>
#include <cstdint>

#include "longspan/status.h"

namespace longspan::cuda {

/// The UUID of the device, as two words; no two GPUs share one.
Result<std::array<uint64_t, 2>> identity(int ordinal);

}  // namespace longspan::cuda
