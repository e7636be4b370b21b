// Any bytes, and any JSON under a checksum that fits: refused with a message, or a plan whose bytes
// they are. What can be read is loaded or refused, but never changes.
#include "longspan/plan_record.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/record_json.h"

namespace {

using longspan::PlanRecord;

void read(std::string_view bytes) {
  const longspan::Result<PlanRecord> record = PlanRecord::from_bytes(bytes);
  if (!record.ok()) {
    if (record.error().message.empty()) std::abort();
    return;
  }
  if (record->to_bytes() != bytes) std::abort();
  const longspan::Topology topology{record->node_of_rank};
  if (topology.ranks() > 64) return;
  const auto settled = longspan::settle(*record, topology, longspan::cpu_device(1));
  if (!settled.ok() && settled.error().message.empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    return depth <= 8;
  };
  const nlohmann::json plan = nlohmann::json::parse(bytes, shallow, false);
  if (plan.is_object()) read(longspan::sealed(plan));
  return 0;
}
