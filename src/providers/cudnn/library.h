// The cuDNN library of the process: found and opened at run time, never linked.
#pragma once

#include <optional>
#include <string>

#include "longspan/status.h"

namespace longspan::cudnn {

struct Library {
  void* handle = nullptr;
  std::string path;
  int version = 0;  // 91900: 9.19.0
};

/// Opens the library on the first call; later calls give the same answer. The error says what was
/// looked for, and which version is needed. Thread-safe.
Result<const Library*> library();

/// Why a version may not be used, or none.
std::optional<std::string> refused_version(int version);

/// unsupported when a part of cuDNN that the process has mapped comes from another directory than
/// the main library: two installations must not be mixed.
Status one_installation(const Library& library);

std::string version_text(int version);  // "9.19.0"

}  // namespace longspan::cudnn
