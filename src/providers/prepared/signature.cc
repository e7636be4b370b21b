#include "providers/prepared/signature.h"

#include <fmt/format.h>

#include <algorithm>

#include "providers/prepared/errors.h"

namespace longspan::prepared {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// Parts between commas that stand in no bracket.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c != ',' || (depth != 0 && i < text.size())) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return parts;
}

/// The inside of "PREFIX...SUFFIX", or nothing.
std::string_view inside(std::string_view text, std::string_view prefix, std::string_view suffix) {
  if (!text.starts_with(prefix) || !text.ends_with(suffix)) return {};
  return text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
}

bool describe_tuple(std::string_view inner, Slot& slot) {
  const std::vector<std::string_view> items = split(inner);
  slot.items = static_cast<int64_t>(items.size());
  const bool alike = std::ranges::all_of(items, [&](auto item) { return item == items[0]; });
  if (!alike) return false;
  if (items[0] == "None") {
    slot.kind = "nones";
    return true;
  }
  if (items[0] != "int32" && items[0] != "int64") return false;
  slot.kind = fmt::format("{}x{}", items[0], items.size());
  return true;
}

bool describe(std::string_view kind, Slot& slot) {
  if (const std::string_view inner = inside(kind, "Tensor(", ")"); !inner.empty()) {
    const std::vector<std::string_view> parts = split(inner);
    if (parts.size() != 2) return false;
    slot.kind = "tensor";
    slot.rank = static_cast<int64_t>(split(inside(parts[0], "[", "]")).size());
    slot.dtype = parts[1];
    return true;
  }
  if (const std::string_view inner = inside(kind, "Tuple[", "]"); !inner.empty()) {
    return describe_tuple(inner, slot);
  }
  if (kind == "None") slot.kind = "none";
  if (kind == "DataPointer") slot.kind = "pointer";
  if (kind == "Stream") slot.kind = "stream";
  if (kind == "float32" || kind == "int32" || kind == "int64") slot.kind = kind;
  return !slot.kind.empty();
}

}  // namespace

Result<std::vector<Slot>> parse_signature(std::string_view text) {
  std::vector<Slot> slots;
  for (const std::string_view part : split(text)) {
    const size_t colon = part.find(':');
    Slot slot{.name = std::string(trimmed(part.substr(0, colon)))};
    if (colon == part.npos || slot.name.empty() || !describe(trimmed(part.substr(colon + 1)), slot))
      return refused(fmt::format("signature has a slot \"{}\" of unknown form", part));
    slots.push_back(std::move(slot));
  }
  return slots;
}

}  // namespace longspan::prepared
