// Reading and writing safetensors files. The reader trusts nothing in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/status.h"
#include "memory.h"
#include "output_file.h"

namespace longspan::tool {

enum class FileType { kF64, kF32, kF16, kBF16, kI64, kI32, kU8 };

std::string_view name(FileType type);  // "F64", "BF16", ...
int64_t size_of(FileType type);
/// invalid_argument names the text and all types.
Result<FileType> parse_file_type(std::string_view text);

/// A tensor's place in the data that follows the header.
struct TensorEntry {
  FileType type = FileType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const TensorEntry&) const = default;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

/// Largest header that is read.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

/// Checks a header against the number of data bytes that follow it: each name once, known dtypes,
/// shapes whose size is that of their bytes, and ranges that cover the data without overlap or
/// hole. Every fault is invalid_argument.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t data_bytes);

/// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);
/// Text of a foreign file, made fit for a message: quoted, unprintable bytes escaped, shortened.
std::string shown(std::string_view text);

/// An open file. Used by one thread at a time.
class SafetensorsFile {
 public:
  /// invalid_argument when the file cannot be opened or its header is not sound.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  const TensorEntry* find(std::string_view name) const;
  /// The bytes of a tensor of the header.
  Result<Memory> read(const TensorEntry& entry) const;
  /// The values of a tensor of type I32 or I64 with one dimension.
  Result<std::vector<int64_t>> read_integers(const std::string& name) const;

 private:
  struct Descriptor {
    int value = -1;
    ~Descriptor();
  };

  std::string path_;
  std::shared_ptr<Descriptor> descriptor_;
  int64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

/// A tensor to write; the bytes stay the caller's.
struct NamedTensor {
  std::string name;
  FileType type = FileType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

Status write_safetensors(OutputFile& file, const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata);

}  // namespace longspan::tool
