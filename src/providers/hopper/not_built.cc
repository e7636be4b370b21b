#include "providers/hopper/hopper.h"

namespace longspan {

constinit const Hopper kHopper;

namespace {

constexpr const char* kRemedy =
    "built without hopper: configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 is installed and "
    "-DCMAKE_CUDA_ARCHITECTURES=90a";

}  // namespace

Verdict Hopper::consider(const TileProblem&, const Device&) const {
  return Decline{DeclineCode::kNotBuilt, kRemedy};
}

Verdict Hopper::consider_pulls(const TileProblem&, const Device&) const {
  return Decline{DeclineCode::kNotBuilt, kRemedy};
}

Result<std::shared_ptr<const Plan>> Hopper::prepare(const TileProblem&, const Device&) const {
  return Error{ErrorCode::kUnsupported, kRemedy, "hopper"};
}

}  // namespace longspan
