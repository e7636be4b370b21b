// JSON and texts that others wrote.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "longspan/status.h"

namespace longspan {

/// The value of a text. invalid_argument says what it is instead: no JSON, an object in which a
/// field stands twice, or values nested deeper than 8.
Result<nlohmann::json> parse_json(std::string_view text);

/// The text of a file. invalid_argument names the file that cannot be read or has more bytes.
Result<std::string> read_text(const std::string& path, size_t most_bytes);

}  // namespace longspan
