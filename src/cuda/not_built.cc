#include "longspan/provider.h"

namespace longspan {

Result<Device> cuda_device(int) {
  return Error{ErrorCode::kUnsupported,
               "built without CUDA; configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 is installed",
               "cuda"};
}

}  // namespace longspan
