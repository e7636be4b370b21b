// SHA-256, as FIPS 180-4 has it.
#pragma once

#include <string>

#include "longspan/status.h"

namespace longspan::prepared {

/// 64 lower-case hexadecimal digits. unsupported when the file cannot be read.
Result<std::string> sha256_of_file(const std::string& path);
std::string sha256_of_text(std::string text);

}  // namespace longspan::prepared
