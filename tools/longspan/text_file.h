// Text files that a flag names.
#pragma once

#include <string>

#include "longspan/status.h"

namespace longspan::tool {

/// The whole text. invalid_argument names the flag and the file that cannot be read, or that has
/// more than 16 MiB.
Result<std::string> read_text_file(const std::string& flag, const std::string& path);

}  // namespace longspan::tool
