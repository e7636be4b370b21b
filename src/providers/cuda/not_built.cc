#include "providers/cuda/on_device.h"
#include "providers/cuda/reference.h"

namespace longspan {
namespace {

constexpr std::string_view kRemedy =
    "built without CUDA; configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 is installed";

Error not_built() { return {ErrorCode::kUnsupported, std::string(kRemedy), "cuda"}; }

}  // namespace

constinit const CudaReference kCudaReference;

Verdict CudaReference::consider(const TileProblem&, const Device&) const {
  return Decline{DeclineCode::kNotBuilt, std::string(kRemedy)};
}

Result<std::shared_ptr<const Plan>> CudaReference::prepare(const TileProblem&,
                                                           const Device&) const {
  return not_built();
}

Status cuda::on_device(const Device&, const std::function<Status()>&) { return not_built(); }

Status cuda::with_scratch(size_t, Stream, const std::function<Status(Workspace)>&) {
  return not_built();
}

}  // namespace longspan
