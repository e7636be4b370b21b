#include "longspan/libraries.h"
#include "providers/prepared/prepared.h"

namespace longspan {

constinit const PreparedKernels kPrepared;

namespace {

constexpr const char* kRemedy =
    "built without prepared: configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 is, and "
    "LONGSPAN_TVM_FFI as scripts/setup.sh unpacks it";

Error not_built() { return {ErrorCode::kUnsupported, kRemedy, "prepared"}; }

}  // namespace

Result<std::string> PreparedKernels::identity(const Problem&, Direction, const Device&) const {
  return not_built();
}

Verdict PreparedKernels::consider(const TileProblem&, const Device&) const {
  return Decline{DeclineCode::kNotBuilt, kRemedy};
}

Result<std::shared_ptr<const Plan>> PreparedKernels::prepare(const TileProblem&,
                                                             const Device&) const {
  return not_built();
}

Status set_prepared_store(const std::string& folder) {
  return Error{ErrorCode::kInvalidArgument,
               "store '" + folder + "' of prepared kernels: " + kRemedy, "prepared"};
}

}  // namespace longspan
