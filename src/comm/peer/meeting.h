// How the ranks of a group find each other's memory.
#pragma once

#include <memory>
#include <vector>

#include "comm/peer/flags.h"
#include "comm/peer/memory_map.h"
#include "comm/peer/region.h"
#include "cuda/runtime.h"
#include "longspan/communicator.h"

namespace longspan::comm {

/// What a rank has in hand once all have met.
struct Meeting {
  std::unique_ptr<Region> region;
  cuda::OwnedStream lane;  // of the copies
  std::unique_ptr<MemoryMap> memory;
  Flags flags;
  bool shares_device = false;       // with another rank of this process
  bool shares_bus_address = false;  // the same of any process
  /// The flags' memory of the ranks of this process: a peer may write there until it goes itself.
  std::vector<std::shared_ptr<void>> keepers;
};

/// Collective over `host`: all ranks must be on one host, and reach each other's devices. An error
/// of one rank is an error of all. The current device is the rank's.
Result<Meeting> meet(Communicator& host, int ordinal);

}  // namespace longspan::comm
