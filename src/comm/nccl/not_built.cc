#include "longspan/communicator.h"
#include "longspan/device.h"

namespace longspan {
namespace {

Error not_built() {
  return {ErrorCode::kUnsupported,
          "this build has no nccl communicator; run scripts/setup.sh, which gets NCCL's header, "
          "and configure with -DLONGSPAN_CUDA=ON",
          "nccl"};
}

}  // namespace

Result<std::string> nccl_description(const NcclSettings&) { return not_built(); }

Result<NcclId> make_nccl_id(const NcclSettings&) { return not_built(); }

Result<std::shared_ptr<Communicator>> make_nccl_communicator(std::shared_ptr<Communicator>,
                                                             const Device&, const NcclSettings&) {
  return not_built();
}

Result<std::shared_ptr<Communicator>> make_nccl_communicator(const NcclId&, const NcclMember&,
                                                             const Device&) {
  return not_built();
}

Result<std::shared_ptr<Communicator>> make_nccl_communicator(const std::string&, const NcclMember&,
                                                             const Device&) {
  return not_built();
}

}  // namespace longspan
