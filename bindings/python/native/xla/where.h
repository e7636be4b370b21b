// Where a handler runs, and the results that XLA understands.
#pragma once

#include <cstring>

#include "longspan/device.h"
#include "longspan/status.h"
#include "xla/ffi/api/ffi.h"

namespace longspan::xla {

namespace ffi = ::xla::ffi;

/// The device of one execution and the stream that XLA queues on.
struct Where {
  int ordinal = 0;
  Stream stream;

  /// Small values that the host needs. On a CUDA device this waits for the stream.
  Status read(void* to, const ffi::AnyBuffer& from) const;
};

ffi::Error to_xla(const Status& status);

}  // namespace longspan::xla
