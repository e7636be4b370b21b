#include "providers/cuda/on_device.h"

#include "cuda/runtime.h"

namespace longspan::cuda {

Status on_device(const Device& device, const std::function<Status()>& body) {
  const DeviceScope scope(device.ordinal);
  return body();
}

Status with_scratch(size_t bytes, Stream stream, const std::function<Status(Workspace)>& body) {
  LONGSPAN_TRY(const Memory memory, Memory::make(bytes));
  const Status done = body({memory.data(), bytes});
  LONGSPAN_CHECK_OK(synchronize(stream));  // also after an error: launches may use the memory
  return done;
}

}  // namespace longspan::cuda
