// The commands of the tool.
#pragma once

#include <memory>

#include "arguments.h"
#include "outcome.h"

namespace longspan::tool {

/// What outlives a command.
struct Session {
  std::shared_ptr<Communicator> mpi;  // with --communicator mpi
  bool lost = false;                  // a peer was lost: no more collective calls

  bool reports() const { return !mpi || mpi->rank() == 0; }
};

Outcome run_command(const Arguments& arguments, Session& session);
Outcome explain_command(const Arguments& arguments);
Outcome schedule_command(const Arguments& arguments);
Outcome simulate_command(const Arguments& arguments);
Outcome list_command(const Arguments& arguments);

}  // namespace longspan::tool
