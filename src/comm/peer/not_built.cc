#include "longspan/communicator.h"
#include "longspan/device.h"

namespace longspan {
namespace {

Error not_built() {
  return {ErrorCode::kUnsupported, "built without CUDA; configure with -DLONGSPAN_CUDA=ON", "peer"};
}

}  // namespace

Result<std::vector<std::shared_ptr<Communicator>>> make_peer_communicators(
    const Topology&, std::span<const Device>) {
  return not_built();
}

Result<std::shared_ptr<Communicator>> make_peer_communicator(std::shared_ptr<Communicator>,
                                                             const Device&) {
  return not_built();
}

}  // namespace longspan
