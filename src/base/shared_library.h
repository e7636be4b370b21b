// Libraries of others that are found and opened at run time, never linked.
#pragma once

#include <string>

#include "longspan/status.h"

namespace longspan {

/// An open library. It stays open to the end of the process.
struct SharedLibrary {
  void* handle = nullptr;
  std::string path;  // of the file, without links

  /// unsupported names library and symbol.
  Result<void*> symbol(const char* name) const;
};

/// The file of an open library, without links: one file has one path.
std::string path_of_library(void* handle);

/// The file called `soname` that the process has mapped already, else `file` (empty: no wish), else
/// what the loader's own path has. unsupported says what was tried, and when `file` is another one
/// than is mapped: two copies of a library must not be mixed.
Result<SharedLibrary> open_shared_library(const std::string& soname, const std::string& file);

}  // namespace longspan
