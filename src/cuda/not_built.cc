#include "cuda/upload.h"

namespace longspan {

Result<Device> cuda_device(int) {
  return Error{ErrorCode::kUnsupported,
               "built without CUDA; configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 is installed",
               "cuda"};
}

Result<std::shared_ptr<void>> cuda::upload(const Device&, const void*, size_t) {
  return Error{ErrorCode::kUnsupported, "built without CUDA", "cuda"};
}

}  // namespace longspan
