#include "device_clock.h"

namespace longspan::tool {

Result<std::unique_ptr<DeviceClock>> make_cuda_clock(const Device&) {
  return Error{ErrorCode::kUnsupported, "built without CUDA; configure with LONGSPAN_CUDA=ON",
               "bench"};
}

}  // namespace longspan::tool
