#include "comm/nccl/library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/opened.h"
#include "base/shared_library.h"

namespace longspan::comm {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kLowest = NCCL_VERSION(2, 28, 0);
static_assert(NCCL_VERSION_CODE >= kLowest, "set LONGSPAN_NCCL_INCLUDE to 2.28 or newer");
constexpr int kBeyond = NCCL_VERSION(3, 0, 0);

Error unsupported(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message), "nccl"};
}

template <class Function>
Status load(const SharedLibrary& library, const char* name, Function& function) {
  LONGSPAN_TRY(void* const symbol, library.symbol(name));
  function = reinterpret_cast<Function>(symbol);
  return {};
}

Status load_all(const SharedLibrary& library, NcclApi& api) {
  LONGSPAN_CHECK_OK(load(library, "ncclGetErrorString", api.error_string));
  LONGSPAN_CHECK_OK(load(library, "ncclGetLastError", api.last_error));
  LONGSPAN_CHECK_OK(load(library, "ncclGetUniqueId", api.unique_id));
  LONGSPAN_CHECK_OK(load(library, "ncclCommInitRankConfig", api.comm_init));
  LONGSPAN_CHECK_OK(load(library, "ncclCommDestroy", api.comm_destroy));
  LONGSPAN_CHECK_OK(load(library, "ncclCommAbort", api.comm_abort));
  LONGSPAN_CHECK_OK(load(library, "ncclCommGetAsyncError", api.comm_async_error));
  LONGSPAN_CHECK_OK(load(library, "ncclGroupStart", api.group_start));
  LONGSPAN_CHECK_OK(load(library, "ncclGroupEnd", api.group_end));
  LONGSPAN_CHECK_OK(load(library, "ncclSend", api.send));
  return load(library, "ncclRecv", api.recv);
}

Result<int> version_of(const SharedLibrary& library) {
  decltype(&ncclGetVersion) get_version = nullptr;
  LONGSPAN_CHECK_OK(load(library, "ncclGetVersion", get_version));
  int version = 0;
  if (get_version(&version) != ncclSuccess) {
    return unsupported(fmt::format("{} does not tell its version", library.path));
  }
  return version;
}

/// NCCL has no setting for it but this variable, which it reads itself.
Status refuse_multicast() {
  const char* const value = std::getenv("NCCL_NVLS_ENABLE");
  if (value != nullptr && std::string_view(value) == "0") return {};
  return unsupported(
      "NCCL would set up NVLink multicast, which longspan does not use: set NCCL_NVLS_ENABLE=0 in "
      "the environment before the program starts");
}

}  // namespace

Status NcclApi::check(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess) return {};
  return Error{ErrorCode::kDriver,
               fmt::format("{}: {} ({})", what, error_string(result), last_error(nullptr)), "nccl"};
}

Result<std::shared_ptr<const NcclApi>> open_nccl(const std::string& file) {
  auto library = open_shared_library(kName, file);
  if (!library.ok()) {
    return unsupported(
        fmt::format("{}; install nvidia-nccl-cu13 {} or newer and give the path of its {}",
                    library.error().message, nccl_version_text(kLowest), kName));
  }
  auto api = std::make_shared<NcclApi>();
  api->path = library->path;
  LONGSPAN_TRY(api->version, version_of(*library));
  if (api->version < kLowest || api->version >= kBeyond) {
    return unsupported(fmt::format("{} is NCCL {}; {} or a newer 2 is needed", api->path,
                                   nccl_version_text(api->version), nccl_version_text(kLowest)));
  }
  LONGSPAN_CHECK_OK(load_all(*library, *api));
  LONGSPAN_CHECK_OK(refuse_multicast());
  note_opened(fmt::format("NCCL {} ({})", nccl_version_text(api->version), api->path));
  return std::shared_ptr<const NcclApi>(std::move(api));
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace longspan::comm
