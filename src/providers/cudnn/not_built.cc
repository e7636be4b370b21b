#include "longspan/libraries.h"
#include "providers/cudnn/cudnn.h"

namespace longspan {

constinit const Cudnn kCudnn;

namespace {

constexpr const char* kRemedy =
    "built without cudnn: configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 and cuDNN's "
    "headers are installed, and LONGSPAN_CUDNN_FRONTEND as scripts/setup.sh unpacks it";

Error not_built() { return {ErrorCode::kUnsupported, kRemedy, "cudnn"}; }

}  // namespace

Verdict Cudnn::consider(const TileProblem&, const Device&) const {
  return Decline{DeclineCode::kNotBuilt, kRemedy};
}

Result<std::shared_ptr<const Plan>> Cudnn::prepare(const TileProblem&, const Device&) const {
  return not_built();
}

Status set_cudnn_path(const std::string&) { return not_built(); }

}  // namespace longspan
