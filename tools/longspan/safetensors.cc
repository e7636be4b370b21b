#include "safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace longspan::tool {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

constexpr int64_t kPrefix = 8;  // the header's length

Error fault(const std::string& path, const std::string& message) {
  return {ErrorCode::kInvalidArgument, fmt::format("'{}': {}", path, message), "safetensors"};
}

Status read_at(int descriptor, int64_t offset, std::span<std::byte> bytes,
               const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fault(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) return fault(path, fmt::format("ends at byte {} while it is read", offset));
    offset += got;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return {};
}

}  // namespace

SafetensorsFile::Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.descriptor_ = std::make_shared<Descriptor>();
  // Not to hang on a pipe that nobody writes to.
  file.descriptor_->value = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status = {};
  const int descriptor = file.descriptor_->value;
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    return fault(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) return fault(path, "is not a regular file");
  const int64_t size = status.st_size;
  if (size < kPrefix) {
    return fault(path,
                 fmt::format("has {} bytes; a safetensors file starts with the {} bytes of its "
                             "header's length",
                             size, kPrefix));
  }
  uint64_t length = 0;
  LONGSPAN_CHECK_OK(read_at(descriptor, 0, std::as_writable_bytes(std::span(&length, 1)), path));
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return fault(path, fmt::format("header length {} is above the limit of {} bytes; not a "
                                   "safetensors file, or a damaged one",
                                   length, kMaxHeaderBytes));
  }
  const auto header_bytes = static_cast<int64_t>(length);
  if (header_bytes > size - kPrefix) {
    return fault(path, fmt::format("header length {} passes the end of the file ({} bytes); it is "
                                   "truncated or damaged",
                                   length, size));
  }
  std::string json(length, '\0');
  LONGSPAN_CHECK_OK(read_at(descriptor, kPrefix, std::as_writable_bytes(std::span(json)), path));
  file.data_begin_ = kPrefix + header_bytes;
  auto header = parse_safetensors_header(json, size - file.data_begin_);
  if (!header.ok()) return fault(path, header.error().message);
  file.header_ = *std::move(header);
  return file;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = header_.tensors.find(std::string(name));
  return found == header_.tensors.end() ? nullptr : &found->second;
}

Result<Memory> SafetensorsFile::read(const TensorEntry& entry) const {
  Memory memory(static_cast<size_t>(entry.end - entry.begin));
  LONGSPAN_CHECK_OK(read_at(descriptor_->value, data_begin_ + entry.begin,
                            {memory.data(), memory.size()}, path_));
  return memory;
}

Result<std::vector<int64_t>> SafetensorsFile::read_integers(const std::string& name) const {
  const TensorEntry& entry = header_.tensors.at(name);
  const bool integers = entry.type == FileType::kI32 || entry.type == FileType::kI64;
  if (!integers || entry.shape.size() != 1) {
    return fault(path_,
                 fmt::format("tensor '{}' is {} of shape {}; I32 or I64 with one dimension is "
                             "needed",
                             name, tool::name(entry.type), shape_text(entry.shape)));
  }
  LONGSPAN_TRY(const Memory memory, read(entry));
  std::vector<int64_t> values(static_cast<size_t>(entry.shape[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    if (entry.type == FileType::kI64) {
      std::memcpy(&values[i], memory.data() + i * sizeof(int64_t), sizeof(int64_t));
    } else {
      int32_t value = 0;
      std::memcpy(&value, memory.data() + i * sizeof(int32_t), sizeof(int32_t));
      values[i] = value;
    }
  }
  return values;
}

Status write_safetensors(OutputFile& file, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    const auto end = offset + static_cast<int64_t>(tensor.bytes.size());
    header[tensor.name] = {
        {"dtype", name(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = header.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  json.resize((json.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  const auto length = static_cast<uint64_t>(json.size());
  LONGSPAN_CHECK_OK(file.write(std::as_bytes(std::span(&length, 1))));
  LONGSPAN_CHECK_OK(file.write(json));
  for (const NamedTensor& tensor : tensors) {
    LONGSPAN_CHECK_OK(file.write(tensor.bytes));
  }
  return {};
}

}  // namespace longspan::tool
