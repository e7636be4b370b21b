#include "comm/mpi/runtime.h"

#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <mutex>
#include <string>

#include "comm/backoff.h"
#include "comm/deadline.h"

namespace longspan::comm {
namespace {

/// Of the last meeting: ranks come to their end at different times, and rank 0 may work longest.
constexpr std::chrono::milliseconds kFinalizeDeadline = std::chrono::minutes(10);

/// True when all processes came in time.
bool meet_at_the_end() {
  MPI_Request barrier = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &barrier) != MPI_SUCCESS) return false;
  const auto end = deadline_after(kFinalizeDeadline);
  for (Backoff backoff;; backoff.pause()) {
    int done = 0;
    if (MPI_Test(&barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (std::chrono::steady_clock::now() > end) return false;
  }
}

}  // namespace

std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

Status mpi_check(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  return Error{ErrorCode::kDriver, fmt::format("{} failed: {}", call, mpi_text(code)), "mpi"};
}

Result<std::shared_ptr<MpiRuntime>> MpiRuntime::get() {
  // MPI can be initialised once per process, so this is as global as MPI itself.
  static std::mutex mutex;
  static std::weak_ptr<MpiRuntime> current;
  const std::lock_guard lock(mutex);
  if (auto runtime = current.lock()) return runtime;
  auto runtime = std::shared_ptr<MpiRuntime>(new MpiRuntime);
  LONGSPAN_CHECK_OK(runtime->initialise());
  current = runtime;
  return runtime;
}

MpiRuntime::~MpiRuntime() {
  if (!owner_ || lost_ || finalized()) return;
  // MPI_Finalize waits for every process, for ever; a barrier can be given up.
  if (meet_at_the_end()) MPI_Finalize();
}

bool MpiRuntime::finalized() {
  int done = 0;
  MPI_Finalized(&done);
  return done != 0;
}

Status MpiRuntime::initialise() {
  if (finalized()) {
    return Error{ErrorCode::kUnsupported,
                 "MPI was finalised in this process and cannot start again; keep one mpi "
                 "communicator alive as long as others will be made",
                 "mpi"};
  }
  int initialized = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    LONGSPAN_CHECK_OK(mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level),
                                "MPI_Init_thread"));
    owner_ = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  } else {
    MPI_Query_thread(&level);
  }
  if (level >= MPI_THREAD_SERIALIZED) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("MPI provides thread level {}; the communicator is called from one "
                           "thread at a time, not always the same, and needs {} "
                           "(MPI_THREAD_SERIALIZED): ask for it in MPI_Init_thread",
                           level, MPI_THREAD_SERIALIZED),
               "mpi"};
}

}  // namespace longspan::comm
