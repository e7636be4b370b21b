// Ranks as processes of an MPI job. The MPI header stays inside this folder.
#pragma once

#include <cstddef>
#include <memory>

#include "longspan/communicator.h"

namespace longspan::comm {

struct MpiSettings {
  int nodes = 0;                         // 0: by host
  size_t piece_bytes = size_t{1} << 30;  // longer messages are cut; MPI counts are 32 bits wide
};

/// make_mpi_communicator with all settings. Collective; settings are the same on all ranks.
Result<std::shared_ptr<Communicator>> make_mpi(const MpiSettings& settings);

}  // namespace longspan::comm
