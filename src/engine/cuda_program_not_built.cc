#include "engine/cuda_program.h"

namespace longspan {

Result<std::shared_ptr<const RowProgram>> make_cuda_program(const Schedule&, const Device&) {
  return Error{ErrorCode::kUnsupported, "built without CUDA; configure with -DLONGSPAN_CUDA=ON",
               "engine"};
}

}  // namespace longspan
