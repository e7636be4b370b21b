#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "safetensors.h"

namespace longspan::tool {
namespace {

struct TypeName {
  FileType type;
  std::string_view name;
  int64_t size;
};
constexpr std::array<TypeName, 7> kTypes = {{{FileType::kF64, "F64", 8},
                                             {FileType::kF32, "F32", 4},
                                             {FileType::kF16, "F16", 2},
                                             {FileType::kBF16, "BF16", 2},
                                             {FileType::kI64, "I64", 8},
                                             {FileType::kI32, "I32", 4},
                                             {FileType::kU8, "U8", 1}}};
const TypeName& entry(FileType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [type](const TypeName& candidate) { return candidate.type == type; });
}

}  // namespace

std::string_view name(FileType type) { return entry(type).name; }
int64_t size_of(FileType type) { return entry(type).size; }

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string result = "'";
  for (const char byte : text.substr(0, kLongest)) {
    const auto code = static_cast<unsigned char>(byte);
    result += code >= 0x20 && code < 0x7f ? std::string(1, byte) : fmt::format("\\x{:02x}", code);
  }
  return result + (text.size() > kLongest ? "...'" : "'");
}

Result<FileType> parse_file_type(std::string_view text) {
  for (const TypeName& type : kTypes) {
    if (type.name == text) return type.type;
  }
  std::vector<std::string_view> names;
  for (const TypeName& type : kTypes) names.push_back(type.name);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("dtype {} is not read; {} are", shown(text), fmt::join(names, ", ")),
               "safetensors"};
}

}  // namespace longspan::tool
