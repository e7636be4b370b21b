#include "longspan/communicator.h"
#include "longspan/device.h"

namespace longspan {

Result<std::vector<std::shared_ptr<Communicator>>> make_peer_communicators(
    const Topology&, std::span<const Device>) {
  return Error{ErrorCode::kUnsupported, "built without CUDA; configure with -DLONGSPAN_CUDA=ON",
               "peer"};
}

}  // namespace longspan
