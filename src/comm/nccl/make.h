// How ranks come to an NCCL communicator.
#pragma once

#include <memory>
#include <string>

#include "comm/nccl/library.h"
#include "comm/split_group.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// Collective over `whole`, which carries words: the communicator of this rank's part. `host` (of
/// the part) may be null, as in NcclCommunicator::make.
Result<std::shared_ptr<Communicator>> join_part(std::shared_ptr<const NcclApi> api,
                                                Communicator& whole, const SplitGroup& part,
                                                std::shared_ptr<Communicator> host, int ordinal);

}  // namespace longspan::comm
