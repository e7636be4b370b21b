#include "text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace longspan::tool {

Result<std::string> read_text_file(const std::string& flag, const std::string& path) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  const auto usage = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} '{}' {}", flag, path, what), "usage"};
  };
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');  // one more shows that a file is too long
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return usage(fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostBytes) return usage(fmt::format("has more than {} bytes", kMostBytes));
  return text;
}

}  // namespace longspan::tool
