#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/json.h"
#include "longspan/provider.h"
#include "longspan/routing_table.h"

namespace longspan {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr int64_t kMostLength = kMaxTokens;
constexpr size_t kMostBytes = size_t{16} << 20;

Error bad(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "routing table"};
}

/// An object that has all of the named fields and no others.
Status check_fields(const json& object, const std::string& where,
                    std::initializer_list<std::string_view> names) {
  if (!object.is_object()) return bad(fmt::format("{} is no JSON object", where));
  for (const auto& item : object.items()) {
    if (std::ranges::find(names, item.key()) != names.end()) continue;
    return bad(fmt::format("{} has the unknown field \"{}\"; it may have {}", where, item.key(),
                           fmt::join(names, ", ")));
  }
  for (const std::string_view name : names) {
    if (!object.contains(name)) return bad(fmt::format("{} has no field \"{}\"", where, name));
  }
  return {};
}

Error wrong(const std::string& where, const char* field, const json& value,
            const std::string& allowed) {
  return bad(fmt::format("{}: \"{}\" is {}; it must be {}", where, field, value.dump(), allowed));
}

/// The value whose name() stands in the field.
template <class T>
Result<T> named(const json& row, const std::string& where, const char* field,
                std::span<const T> all) {
  std::string allowed;
  for (const T value : all) {
    if (row[field] == name(value)) return value;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", name(value));
  }
  return wrong(where, field, row[field], "one of " + allowed);
}

Result<int64_t> integer(const json& row, const std::string& where, const char* field,
                        int64_t most) {
  const json& value = row[field];
  const bool inside = value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
                      value.get<uint64_t>() <= static_cast<uint64_t>(most);
  if (inside) return value.get<int64_t>();
  return wrong(where, field, value, fmt::format("an integer from 1 to {}", most));
}

Result<bool> flag(const json& row, const std::string& where, const char* field) {
  if (row[field].is_boolean()) return row[field].get<bool>();
  return wrong(where, field, row[field], "true or false");
}

bool is_provider(const std::string& text) {
  return std::ranges::any_of(providers(), [&](const Provider* p) { return p->name() == text; });
}

bool is_number(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && std::ranges::all_of(text, digit);
}

/// As routing_case() writes them.
bool is_device(std::string_view text) {
  constexpr std::string_view kCuda = "cuda ";
  if (text == "cpu") return true;
  const size_t dot = text.find('.');
  if (!text.starts_with(kCuda) || dot == text.npos) return false;
  return is_number(text.substr(kCuda.size(), dot - kCuda.size())) &&
         is_number(text.substr(dot + 1));
}

Result<std::vector<MeasuredTime>> times_of(const json& row, const std::string& where) {
  constexpr const char* kField = "median_us";
  const json& times = row[kField];
  if (!times.is_object() || times.empty()) {
    return wrong(where, kField, times, "an object with the time of each provider");
  }
  std::vector<MeasuredTime> result;
  for (const auto& item : times.items()) {
    if (!is_provider(item.key())) {
      return wrong(where, kField, times, fmt::format("of providers; {} is none", item.key()));
    }
    const double time = item.value().is_number() ? item.value().get<double>() : 0;
    if (!(time > 0) || !std::isfinite(time)) {
      return wrong(where, kField, times, "of numbers above 0");
    }
    result.push_back({item.key(), time});
  }
  std::ranges::stable_sort(result, {}, &MeasuredTime::microseconds);
  return result;
}

Result<RoutingRow> row_of(const json& row, const std::string& where) {
  constexpr std::array kDirections = {Direction::kForward, Direction::kBackward};
  constexpr std::array kTypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  constexpr std::array kMasks = {MaskClass::kFull, MaskClass::kCausal, MaskClass::kWindow};
  LONGSPAN_CHECK_OK(check_fields(row, where,
                                 {"device", "direction", "dtype", "dim", "dim_v", "mask", "packed",
                                  "deterministic", "length", "median_us"}));
  RoutingRow result;
  RoutingCase& c = result.measured;
  if (!row["device"].is_string() || !is_device(row["device"].get<std::string>())) {
    return wrong(where, "device", row["device"], "cpu, or cuda and a compute capability: cuda 9.0");
  }
  c.device = row["device"].get<std::string>();
  LONGSPAN_TRY(c.direction, named<Direction>(row, where, "direction", kDirections));
  LONGSPAN_TRY(c.dtype, named<DType>(row, where, "dtype", kTypes));
  LONGSPAN_TRY(c.dim, integer(row, where, "dim", kMaxDim));
  LONGSPAN_TRY(c.dim_v, integer(row, where, "dim_v", kMaxDim));
  LONGSPAN_TRY(c.mask, named<MaskClass>(row, where, "mask", kMasks));
  LONGSPAN_TRY(c.packed, flag(row, where, "packed"));
  LONGSPAN_TRY(c.deterministic, flag(row, where, "deterministic"));
  LONGSPAN_TRY(c.length, integer(row, where, "length", kMostLength));
  LONGSPAN_TRY(result.times, times_of(row, where));
  return result;
}

std::string row_text(const RoutingRow& row) {
  const RoutingCase& c = row.measured;
  std::string times;
  for (const MeasuredTime& t : row.times) {
    times += fmt::format("{}\"{}\": {}", times.empty() ? "" : ", ", t.provider, t.microseconds);
  }
  return fmt::format(
      "  {{\"device\": {}, \"direction\": \"{}\", \"dtype\": \"{}\", \"dim\": {}, \"dim_v\": {}, "
      "\"mask\": \"{}\", \"packed\": {}, \"deterministic\": {}, \"length\": {}, "
      "\"median_us\": {{{}}}}}",
      json(c.device).dump(), name(c.direction), name(c.dtype), c.dim, c.dim_v, name(c.mask),
      c.packed, c.deterministic, c.length, times);
}

}  // namespace

Result<RoutingTable> RoutingTable::from_json(std::string_view text) {
  const Result<json> parsed = parse_json(text);
  if (!parsed.ok()) {
    return bad(fmt::format("{}; longspan bench --calibrate writes tables", parsed.error().message));
  }
  const json& root = *parsed;
  LONGSPAN_CHECK_OK(check_fields(root, "the table", {"format", "fingerprint", "rows"}));
  if (root["format"] != kFormat) {
    return wrong("the table", "format", root["format"], fmt::format("{}", kFormat));
  }
  RoutingTable table;
  if (!root["fingerprint"].is_object()) return bad("\"fingerprint\" is no JSON object");
  for (const auto& item : root["fingerprint"].items()) {
    if (!item.value().is_string()) {
      return wrong("the fingerprint", item.key().c_str(), item.value(), "a text");
    }
    table.fingerprint[item.key()] = item.value().get<std::string>();
  }
  if (!root["rows"].is_array()) return bad("\"rows\" is no JSON list");
  for (const json& row : root["rows"]) {
    LONGSPAN_TRY(RoutingRow read, row_of(row, fmt::format("row {}", table.rows.size())));
    const bool known = std::ranges::any_of(
        table.rows, [&](const RoutingRow& other) { return other.measured == read.measured; });
    if (known) return bad(fmt::format("row {} is of the case of another row", table.rows.size()));
    table.rows.push_back(std::move(read));
  }
  return table;
}

Result<RoutingTable> RoutingTable::load(const std::string& path) {
  const Result<std::string> text = read_text(path, kMostBytes);
  if (!text.ok()) return bad(text.error().message);
  auto table = from_json(*text);
  if (table.ok()) return table;
  return bad(fmt::format("'{}': {}", path, table.error().message));
}

std::string RoutingTable::to_json() const {
  std::vector<std::string> lines;
  for (const RoutingRow& row : rows) lines.push_back(row_text(row));
  return fmt::format("{{\"format\": {},\n \"fingerprint\": {},\n \"rows\": [\n{}\n ]}}\n", kFormat,
                     json(fingerprint).dump(), fmt::join(lines, ",\n"));
}

}  // namespace longspan
