#include "comm/mpi/communicator.h"

namespace longspan {

Result<std::shared_ptr<Communicator>> comm::make_mpi(const MpiSettings&) {
  return Error{ErrorCode::kUnsupported,
               "this build has no mpi communicator; configure with -DLONGSPAN_MPI=ON (packages "
               "libopenmpi-dev and openmpi-bin)",
               "mpi"};
}

Result<std::shared_ptr<Communicator>> make_mpi_communicator(int nodes) {
  return comm::make_mpi({.nodes = nodes});
}

}  // namespace longspan
