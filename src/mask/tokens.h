// Counting tokens on the host and on devices.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace longspan {

/// How many of the tokens begin + i * stride, i in [0, count), are below `length`: the first ones.
LONGSPAN_HOST_DEVICE inline int64_t tokens_below(int64_t begin, int64_t stride, int64_t count,
                                                 int64_t length) {
  if (begin >= length) return 0;
  const int64_t below = (length - begin + stride - 1) / stride;
  return below < count ? below : count;
}

}  // namespace longspan
