#include "providers/prepared/fields.h"

#include <fmt/format.h>

#include "base/json.h"
#include "providers/prepared/errors.h"

namespace longspan::prepared {

using nlohmann::json;

namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  // far more than any manifest has

}  // namespace

Result<json> read_json(const std::string& path) {
  const Result<std::string> text = read_text(path, kMostBytes);
  if (!text.ok()) return refused(text.error().message);
  Result<json> value = parse_json(*text);
  if (value.ok()) return value;
  return refused(fmt::format("{}: {}", path, value.error().message));
}

Result<Fields> Fields::of(const json& object, std::string where) {
  if (object.is_object()) return Fields(object, std::move(where));
  return refused(fmt::format("{} is no JSON object", where));
}

Error Fields::wrong(const std::string& key, const std::string& what) const {
  return refused(fmt::format("{}: field {} {}", where_, key, what));
}

Result<const json*> Fields::find(const std::string& key) {
  read_.insert(key);
  const auto found = object_->find(key);
  if (found == object_->end()) return wrong(key, "is missing");
  return &*found;
}

Result<std::string> Fields::text(const std::string& key) {
  LONGSPAN_TRY(const json* const value, find(key));
  if (!value->is_string()) return wrong(key, "is no text");
  return value->get<std::string>();
}

Result<int64_t> Fields::integer(const std::string& key, int64_t least, int64_t most) {
  LONGSPAN_TRY(const json* const value, find(key));
  if (!value->is_number_integer()) return wrong(key, "is no integer");
  const auto number = value->get<int64_t>();
  if (number >= least && number <= most) return number;
  return wrong(key, fmt::format("is {}, not in {}..{}", number, least, most));
}

Result<bool> Fields::flag(const std::string& key) {
  LONGSPAN_TRY(const json* const value, find(key));
  if (!value->is_boolean()) return wrong(key, "is neither true nor false");
  return value->get<bool>();
}

Result<Fields> Fields::fields(const std::string& key) {
  LONGSPAN_TRY(const json* const value, find(key));
  return of(*value, fmt::format("{}, {}", where_, key));
}

Result<std::vector<Fields>> Fields::list(const std::string& key) {
  LONGSPAN_TRY(const json* const value, find(key));
  if (!value->is_array()) return wrong(key, "is no list");
  std::vector<Fields> result;
  for (const json& item : *value) {
    LONGSPAN_TRY(Fields fields, of(item, fmt::format("{}, {}[{}]", where_, key, result.size())));
    result.push_back(std::move(fields));
  }
  return result;
}

std::vector<std::string> Fields::keys() const {
  std::vector<std::string> result;
  for (const auto& item : object_->items()) result.push_back(item.key());
  return result;
}

Status Fields::none_left() const {
  for (const std::string& key : keys()) {
    if (!read_.contains(key)) return wrong(key, "is unknown");
  }
  return {};
}

}  // namespace longspan::prepared
