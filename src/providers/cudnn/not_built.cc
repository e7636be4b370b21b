#include "providers/cudnn/cudnn.h"

namespace longspan {

constinit const Cudnn kCudnn;

Verdict Cudnn::consider(const TileProblem&, const Device&) const {
  return Decline{
      DeclineCode::kNotBuilt,
      "built without cudnn: configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 and cuDNN's "
      "headers are installed, and LONGSPAN_CUDNN_FRONTEND as scripts/setup.sh unpacks it"};
}

Result<std::shared_ptr<const Plan>> Cudnn::prepare(const TileProblem& problem,
                                                   const Device& device) const {
  return Error{ErrorCode::kUnsupported, std::get<Decline>(consider(problem, device)).detail,
               "cudnn"};
}

}  // namespace longspan
