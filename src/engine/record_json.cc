#include "engine/record_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/agreement.h"
#include "longspan/plan_record.h"
#include "longspan/version.h"

namespace longspan {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr int kMostDepth = 2;  // of a plan: its directions' fields
constexpr std::string_view kAgain = "record the plan again (PlanRecord::to_bytes)";

Error bad(const std::string& message) { return {ErrorCode::kInvalidArgument, message, "plan"}; }

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

json direction_json(const RecordedDirection& direction) {
  return {{"strategy", direction.strategy},
          {"routing", direction.routing},
          {"provider", direction.provider},
          {"identity", direction.identity},
          {"schedule", hex(direction.schedule_hash)}};
}

/// Typed access to an object that has the named fields and no others.
class Fields {
 public:
  static Result<Fields> of(const json& object, std::string_view where,
                           std::initializer_list<std::string_view> names) {
    if (!object.is_object()) return bad(fmt::format("{} must be an object; {}", where, kAgain));
    for (const auto& [key, value] : object.items()) {
      if (std::find(names.begin(), names.end(), key) != names.end()) continue;
      return bad(fmt::format("{} has the unknown field \"{}\"; it may have {}", where, key,
                             fmt::join(names, ", ")));
    }
    for (const std::string_view name : names) {
      if (object.contains(name)) continue;
      return bad(fmt::format("{} has no field \"{}\"; {}", where, name, kAgain));
    }
    return Fields(object, where);
  }

  const json& at(const char* name) const { return object_[name]; }
  Result<std::string> text(const char* name) const {
    if (!at(name).is_string()) return mistyped(name, "a text");
    return at(name).get<std::string>();
  }
  Result<bool> flag(const char* name) const {
    if (!at(name).is_boolean()) return mistyped(name, "true or false");
    return at(name).get<bool>();
  }
  Result<int> count(const char* name, int most) const {
    const json& value = at(name);
    if (!value.is_number_unsigned() || value.get<uint64_t>() < 1 ||
        value.get<uint64_t>() > static_cast<uint64_t>(most)) {
      return mistyped(name, fmt::format("an integer from 1 to {}", most));
    }
    return value.get<int>();
  }
  Result<uint64_t> hash(const char* name) const {
    LONGSPAN_TRY(const std::string written, text(name));
    uint64_t value = 0;
    const char* const end = written.data() + written.size();
    const auto read = std::from_chars(written.data(), end, value, 16);
    if (read.ptr != end || hex(value) != written) return mistyped(name, "16 hexadecimal digits");
    return value;
  }
  Error mistyped(const char* name, std::string_view allowed) const {
    return bad(
        fmt::format("{}: \"{}\" is {}; it must be {}", where_, name, at(name).dump(), allowed));
  }

 private:
  Fields(const json& object, std::string_view where) : object_(object), where_(where) {}

  const json& object_;
  std::string where_;
};

Result<std::vector<int>> nodes_of(const Fields& fields) {
  constexpr const char* kName = "node_of_rank";
  const json& list = fields.at(kName);
  std::vector<int> nodes;
  for (const json& node : list.is_array() ? list : json::array()) {
    const bool known = node.is_number_unsigned() && node.get<uint64_t>() < list.size();
    if (!known) return fields.mistyped(kName, "node numbers from 0, below the number of ranks");
    nodes.push_back(node.get<int>());
  }
  if (nodes.empty()) return fields.mistyped(kName, "the node of each rank, of one at least");
  return nodes;
}

Result<std::vector<Promise>> promises_of(const Fields& fields) {
  constexpr const char* kName = "promises";
  if (!fields.at(kName).is_array()) return fields.mistyped(kName, "a list of promises");
  std::vector<Promise> promises;
  for (const json& text : fields.at(kName)) {
    if (!text.is_string()) return fields.mistyped(kName, "a list of promises");
    LONGSPAN_TRY(const Promise promise, parse_promise(text.get<std::string>()));
    promises.push_back(promise);
  }
  return promises;
}

Status check_provider(const RecordedDirection& direction) {
  LONGSPAN_TRY(const Routing routing, parse_routing(direction.routing));
  LONGSPAN_CHECK_OK(parse_routing("require:" + direction.provider));
  const bool same = routing.provider == direction.provider;
  const bool allowed = (routing.mode != RoutingMode::kRequire || same) &&
                       (routing.mode != RoutingMode::kOff || !same);
  if (allowed) return {};
  return bad(fmt::format("provider {} is not one that routing {} allows; {}", direction.provider,
                         direction.routing, kAgain));
}

Result<RecordedDirection> direction_of(const json& value, std::string_view name) {
  LONGSPAN_TRY(const Fields fields,
               Fields::of(value, fmt::format("the plan's {}", name),
                          {"strategy", "routing", "provider", "identity", "schedule"}));
  RecordedDirection direction;
  LONGSPAN_TRY(direction.strategy, fields.text("strategy"));
  LONGSPAN_TRY(direction.routing, fields.text("routing"));
  LONGSPAN_TRY(direction.provider, fields.text("provider"));
  LONGSPAN_TRY(direction.identity, fields.text("identity"));
  LONGSPAN_TRY(direction.schedule_hash, fields.hash("schedule"));
  LONGSPAN_CHECK_OK(find_strategy(direction.strategy));
  LONGSPAN_CHECK_OK(check_provider(direction));
  return direction;
}

/// What other versions of the library may have written is not looked into.
Status check_version(const json& plan) {
  const auto given = [&](const char* name) {
    return plan.contains(name) ? plan[name].dump() : std::string("absent");
  };
  if (given("format") != json(kFormat).dump()) {
    return bad(fmt::format("the plan's format is {}; this library reads {}: {}", given("format"),
                           kFormat, kAgain));
  }
  if (given("longspan") == json(LONGSPAN_VERSION).dump()) return {};
  return bad(
      fmt::format("the plan was recorded by longspan {}; this is \"{}\": load it there, or "
                  "{} here",
                  given("longspan"), LONGSPAN_VERSION, kAgain));
}

Result<json> parse(std::string_view bytes) {
  if (bytes.empty() || bytes.size() > kMostPlanBytes) {
    return bad(fmt::format("a plan of {} bytes; it has from 1 to {}: {}", bytes.size(),
                           kMostPlanBytes, kAgain));
  }
  // Deeper values are left out, which the comparison below finds.
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= kMostDepth; };
  json plan = json::parse(bytes, shallow, false);
  if (!plan.is_object()) {
    return bad(
        fmt::format("the {} bytes are no JSON object, so they are no plan, or cut or "
                    "changed; {}",
                    bytes.size(), kAgain));
  }
  LONGSPAN_CHECK_OK(check_version(plan));
  if (sealed(plan) == bytes) return plan;
  return bad(fmt::format("the plan's bytes are not as they were written: its checksum is {}; {}",
                         plan.contains("checksum") ? plan["checksum"].dump() : "absent", kAgain));
}

Status check_problem(const std::string& text) {
  LONGSPAN_TRY(const Problem problem, parse_problem(text));
  if (problem.text() == text) return {};
  return bad(fmt::format("the plan's problem \"{}\" is not in canonical form, \"{}\"; {}", text,
                         problem.text(), kAgain));
}

}  // namespace

std::string sealed(json plan) {
  plan.erase("checksum");
  plan["checksum"] = hex(hash_bytes(plan.dump()));
  return plan.dump();
}

std::string PlanRecord::to_bytes() const {
  json promised = json::array();
  for (const Promise promise : promises) promised.push_back(name(promise));
  return sealed({{"format", kFormat},
                 {"longspan", LONGSPAN_VERSION},
                 {"problem", problem},
                 {"node_of_rank", node_of_rank},
                 {"device", device},
                 {"partition", name(partition)},
                 {"head_slices", head_slices},
                 {"require_fp32_partials", require_fp32_partials},
                 {"pulls", pulls},
                 {"gathers_whole", gathers_whole},
                 {"promises", promised},
                 {"guards", name(guards)},
                 {"forward", direction_json(forward)},
                 {"backward", backward ? direction_json(*backward) : json()}});
}

Result<PlanRecord> PlanRecord::from_bytes(std::string_view bytes) {
  LONGSPAN_TRY(const json plan, parse(bytes));
  LONGSPAN_TRY(const Fields fields,
               Fields::of(plan, "the plan",
                          {"format", "longspan", "checksum", "problem", "node_of_rank", "device",
                           "partition", "head_slices", "require_fp32_partials", "pulls",
                           "gathers_whole", "promises", "guards", "forward", "backward"}));
  PlanRecord record;
  LONGSPAN_TRY(record.problem, fields.text("problem"));
  LONGSPAN_CHECK_OK(check_problem(record.problem));
  LONGSPAN_TRY(record.node_of_rank, nodes_of(fields));
  LONGSPAN_TRY(record.device, fields.text("device"));
  LONGSPAN_TRY(const std::string partition, fields.text("partition"));
  LONGSPAN_TRY(record.partition, parse_partition(partition));
  LONGSPAN_TRY(record.head_slices, fields.count("head_slices", kMostHeadSlices));
  LONGSPAN_TRY(record.require_fp32_partials, fields.flag("require_fp32_partials"));
  LONGSPAN_TRY(record.pulls, fields.flag("pulls"));
  LONGSPAN_TRY(record.gathers_whole, fields.flag("gathers_whole"));
  LONGSPAN_TRY(record.promises, promises_of(fields));
  LONGSPAN_TRY(const std::string guards, fields.text("guards"));
  LONGSPAN_TRY(record.guards, parse_guard_policy(guards));
  LONGSPAN_TRY(record.forward, direction_of(plan["forward"], name(Direction::kForward)));
  if (plan["backward"].is_null()) return record;
  LONGSPAN_TRY(record.backward, direction_of(plan["backward"], name(Direction::kBackward)));
  return record;
}

}  // namespace longspan
