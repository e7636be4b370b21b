#include "providers/cudnn/handles.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <vector>

#include "providers/cudnn/library.h"

namespace longspan::cudnn {
namespace {

struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<void*>> idle;  // per device
};

Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

Result<void*> make_handle() {
  LONGSPAN_TRY(const Library* const cudnn, library());
  const auto create = reinterpret_cast<int (*)(void**)>(dlsym(cudnn->handle, "cudnnCreate"));
  void* handle = nullptr;
  const int code = create == nullptr ? -1 : create(&handle);
  if (code != 0) {
    return Error{ErrorCode::kDriver,
                 fmt::format("cudnnCreate of {} failed with status {}", cudnn->path, code),
                 "cudnn"};
  }
  // Parts are mapped by now.
  LONGSPAN_CHECK_OK(one_installation(*cudnn));
  return handle;
}

}  // namespace

Result<HandleLease> HandleLease::take(int ordinal) {
  {
    const std::lock_guard lock(pool().mutex);
    std::vector<void*>& idle = pool().idle[ordinal];
    if (!idle.empty()) {
      void* const handle = idle.back();
      idle.pop_back();
      return HandleLease(handle, ordinal);
    }
  }
  LONGSPAN_TRY(void* const handle, make_handle());
  return HandleLease(handle, ordinal);
}

HandleLease::~HandleLease() {
  if (handle_ == nullptr) return;
  const std::lock_guard lock(pool().mutex);
  pool().idle[ordinal_].push_back(handle_);
}

}  // namespace longspan::cudnn
