// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "longspan/status.h"

namespace longspan::tool {

/// Writes beside `path` and takes its place in commit(); an existing file stays untouched until
/// then, and for good when there is no commit. Paths that are no regular file (/dev/null, a pipe)
/// are written directly.
class OutputFile {
 public:
  /// invalid_argument when the path cannot be written.
  static Result<OutputFile> open(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  Status commit();

 private:
  OutputFile() = default;
  void discard();
  Error failure(const char* action) const;

  std::string path_;
  std::string temporary_;  // empty when written directly
  int descriptor_ = -1;
};

}  // namespace longspan::tool
