#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "longspan/schedule.h"

namespace longspan {
namespace {

struct Field {
  std::string_view name;
  double Rates::*value;
  bool zero_allowed;  // a time; speeds are divided by
};

constexpr std::array kFields = {
    Field{"forward_flops", &Rates::forward_flops, false},
    Field{"backward_flops", &Rates::backward_flops, false},
    Field{"memory_bytes", &Rates::memory_bytes, false},
    Field{"node_bytes", &Rates::node_bytes, false},
    Field{"network_bytes", &Rates::network_bytes, false},
    Field{"node_latency", &Rates::node_latency, true},
    Field{"network_latency", &Rates::network_latency, true},
    Field{"launch_seconds", &Rates::launch_seconds, true},
};

Error bad(std::string text) { return {ErrorCode::kInvalidArgument, std::move(text), "rates"}; }

std::string known_names() {
  std::string names;
  for (const Field& field : kFields) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", field.name);
  }
  return names;
}

}  // namespace

Result<Rates> rates_from_json(std::string_view json) {
  const Result<nlohmann::json> parsed = parse_json(json);
  if (!parsed.ok()) {
    return bad(parsed.error().message + "; expected {\"forward_flops\": 6e14, ...}");
  }
  const nlohmann::json& root = *parsed;
  if (!root.is_object()) return bad("expected a JSON object {\"forward_flops\": 6e14, ...}");
  Rates rates;
  for (const auto& [key, value] : root.items()) {
    const Field* known = nullptr;
    for (const Field& field : kFields) {
      if (field.name == key) known = &field;
    }
    if (known == nullptr) return bad(fmt::format("unknown \"{}\"; one of {}", key, known_names()));
    if (!value.is_number())
      return bad(fmt::format("{} is {}; must be a number", key, value.dump()));
    const auto number = value.get<double>();
    const bool allowed =
        std::isfinite(number) && (number > 0 || (known->zero_allowed && number == 0));
    if (!allowed) {
      return bad(fmt::format("{} is {}; must be {} and finite", key, number,
                             known->zero_allowed ? "at least 0" : "above 0"));
    }
    rates.*known->value = number;
  }
  return rates;
}

}  // namespace longspan
