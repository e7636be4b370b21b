#include <string>

#include "guard/device_guard.h"

namespace longspan::guard {
namespace {

Error not_built() {
  return {ErrorCode::kUnsupported,
          "built without CUDA; configure with -DLONGSPAN_CUDA=ON where nvcc 13.0 is installed",
          "guard"};
}

}  // namespace

Result<std::shared_ptr<Report>> make_device_report(const Device&) { return not_built(); }

Result<std::unique_ptr<const Guard>> make_device_guard(std::vector<Predicate>, GuardPolicy,
                                                       const Device&, std::shared_ptr<Report>) {
  return not_built();
}

}  // namespace longspan::guard
