// The commands of the tool.
#pragma once

#include <memory>
#include <optional>

#include "arguments.h"
#include "outcome.h"

namespace longspan::tool {

/// What outlives a command.
struct Session {
  std::shared_ptr<Communicator> mpi;  // with --communicator mpi
  bool lost = false;                  // a peer was lost: no more collective calls

  bool reports() const { return !mpi || mpi->rank() == 0; }
};

/// Under MPI every process passes here once, whatever becomes of it, so that a rank that cannot
/// start is no reason for the others to wait. Returns what this rank reports: `mine` (none: it can
/// start), or that another rank cannot, or that the ranks were asked for different runs.
std::optional<Outcome> agree_to_start(const Arguments& arguments, Session& session,
                                      std::optional<Outcome> mine);

Outcome run_command(const Arguments& arguments, Session& session);
/// With --serve it writes to standard output itself.
Outcome bench_command(const Arguments& arguments);
Outcome explain_command(const Arguments& arguments);
Outcome schedule_command(const Arguments& arguments);
Outcome simulate_command(const Arguments& arguments);
Outcome list_command(const Arguments& arguments);
Outcome support_command(const Arguments& arguments);

}  // namespace longspan::tool
