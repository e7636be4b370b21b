// TVM-FFI's C interface: the library is found and opened at run time, never linked.
#pragma once

#include <cstdint>
#include <string>

#include "longspan/status.h"

namespace longspan::prepared {

/// Functions of libtvm_ffi.so, with the types of its header.
struct Ffi {
  std::string path;
  int (*set_stream)(int32_t device_type, int32_t device, void* stream, void** before) = nullptr;
  void (*take_error)(void** error) = nullptr;
  int (*release)(void* object) = nullptr;
};

/// The copy that the process has mapped, else `file`. Later calls give the first answer.
/// unsupported when there is none, or one of another version than lists are known of. Thread-safe.
Result<const Ffi*> open_ffi(const std::string& file);

/// "KIND: MESSAGE" of the error that the calling thread's last failed call left.
std::string taken_error(const Ffi& ffi);

/// Makes `stream` the one that entries of the calling thread launch on, until it is destroyed.
class StreamScope {
 public:
  StreamScope(const Ffi& ffi, int ordinal, void* stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;
  bool ok() const { return ok_; }

 private:
  const Ffi& ffi_;
  int ordinal_;
  void* before_ = nullptr;
  bool ok_;
};

}  // namespace longspan::prepared
