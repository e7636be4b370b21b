// The devices of this process, made when first used.
#pragma once

#include "longspan/device.h"

namespace longspan::xla {

inline constexpr int kHost = -1;

/// The host for kHost, else the CUDA device of this number; lives as long as the process. All ranks
/// on the host share its threads. Thread-safe. Errors of cuda_device.
Result<const Device*> device_of(int ordinal);

}  // namespace longspan::xla
