// MPI's start and end in this process. Private to this folder.
#pragma once

#include <deque>
#include <memory>

#include "comm/mpi/notice.h"
#include "longspan/status.h"

namespace longspan::comm {

/// The error of an MPI call that names no peer.
Status mpi_check(int code, const char* call);

/// MPI's words for a code.
std::string mpi_text(int code);

/// Initialises MPI when the program has not, and then also finalises it. Not thread-safe but for
/// get(), like the communicators on top.
class MpiRuntime {
 public:
  /// The one of this process; it lives as long as a communicator uses it.
  static Result<std::shared_ptr<MpiRuntime>> get();
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  static bool finalized();

  /// A peer is gone: nothing collective may be called any more, MPI_Finalize included.
  void mark_lost() { lost_ = true; }
  bool lost() const { return lost_; }

  /// MPI may send a notice after its sender stopped to wait for that, so it lives on here.
  const Notice& keep(const Notice& notice) { return notices_.emplace_back(notice); }

 private:
  MpiRuntime() = default;
  Status initialise();

  bool owner_ = false;
  bool lost_ = false;
  std::deque<Notice> notices_;
};

}  // namespace longspan::comm
