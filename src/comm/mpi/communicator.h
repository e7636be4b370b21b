// Ranks as processes of an MPI job. The MPI header stays inside this folder.
#pragma once

#include <cstddef>
#include <memory>

#include "longspan/communicator.h"

namespace longspan::comm {

struct MpiSettings {
  int nodes = 0;  // 0: by host
  /// Longer messages are cut: MPI counts in 32 bits, and a finished piece tells a waiting side that
  /// the message moves.
  size_t piece_bytes = size_t{4} << 20;
};

/// make_mpi_communicator with all settings. Collective; settings are the same on all ranks.
Result<std::shared_ptr<Communicator>> make_mpi(const MpiSettings& settings);

}  // namespace longspan::comm
