// The NCCL library of the process: found and opened at run time, never linked.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "longspan/status.h"

namespace longspan::comm {

/// The functions that are used, of one library.
struct NcclApi {
  std::string path;
  int version = 0;  // 22809: 2.28.9

  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;

  /// driver error naming `what` and NCCL's texts, or OK.
  Status check(ncclResult_t result, const char* what) const;
};

/// `file`: the library to open; empty: the one that is mapped already, else the loader's.
/// unsupported says what was tried, or which version is needed, or that NCCL would use NVLink
/// multicast.
Result<std::shared_ptr<const NcclApi>> open_nccl(const std::string& file);

std::string nccl_version_text(int version);  // "2.28.9"

}  // namespace longspan::comm
