#include "output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace longspan::tool {
namespace {

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  return real ? std::string(real.get()) : path;
}

/// The mode that a plain open() would give a new file.
mode_t new_file_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

Error OutputFile::failure(const char* action) const {
  return {ErrorCode::kInvalidArgument,
          fmt::format("cannot {} '{}': {}; name a file in a folder that exists and can be written",
                      action, path_, std::strerror(errno)),
          "output"};
}

Result<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile file;
  file.path_ = path;
  struct stat status = {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return file.failure("write");
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) return file.failure("write");
  if (exists && !S_ISREG(status.st_mode)) {
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor_ < 0) return file.failure("write");
    return file;
  }
  file.path_ = resolved(path);
  std::string temporary = file.path_ + ".XXXXXX";
  file.descriptor_ = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (file.descriptor_ < 0) {
    file.path_ = path;
    return file.failure("write");
  }
  file.temporary_ = temporary;
  if (::fchmod(file.descriptor_, exists ? status.st_mode & 07777 : new_file_mode()) != 0) {
    return file.failure("set the mode of");
  }
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this == &other) return *this;
  discard();
  path_ = std::move(other.path_);
  temporary_ = std::exchange(other.temporary_, {});
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure("write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status OutputFile::write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

Status OutputFile::commit() {
  if (::close(std::exchange(descriptor_, -1)) != 0) return failure("write");
  if (temporary_.empty()) return {};
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failure("replace");
  temporary_.clear();
  return {};
}

}  // namespace longspan::tool
