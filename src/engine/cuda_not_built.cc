#include "engine/cuda_program.h"
#include "engine/queues.h"

namespace longspan {

namespace {

Error not_built() {
  return {ErrorCode::kUnsupported, "built without CUDA; configure with -DLONGSPAN_CUDA=ON",
          "engine"};
}

}  // namespace

Result<std::shared_ptr<const RowProgram>> make_cuda_program(const Schedule&, const Device&) {
  return not_built();
}

Result<std::unique_ptr<Queues>> make_cuda_queues(const Device&) { return not_built(); }

}  // namespace longspan
