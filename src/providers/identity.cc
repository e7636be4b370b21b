// The identities of providers whose plans follow from problem and device alone. A number is raised
// when equal plans begin to compute otherwise.
#include "providers/cpu/reference.h"
#include "providers/cpu/tiled.h"
#include "providers/cuda/reference.h"
#include "providers/cudnn/cudnn.h"
#include "providers/hopper/hopper.h"

namespace longspan {

Result<std::string> CpuTiled::identity(const Problem&, Direction, const Device&) const {
  return std::string("1");
}
Result<std::string> CpuReference::identity(const Problem&, Direction, const Device&) const {
  return std::string("1");
}
Result<std::string> CudaReference::identity(const Problem&, Direction, const Device&) const {
  return std::string("1");
}
Result<std::string> Hopper::identity(const Problem&, Direction, const Device&) const {
  return std::string("1");
}

Result<std::string> Cudnn::identity(const Problem&, Direction, const Device&) const {
  return Error{ErrorCode::kUnsupported,
               "cuDNN chooses engines by its heuristics and compiles them in every process, so its "
               "plans cannot be recorded; route both directions to another provider, or prepare "
               "the problem where it runs",
               "cudnn"};
}

}  // namespace longspan
