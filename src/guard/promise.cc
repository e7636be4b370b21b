#include "longspan/promise.h"

#include <fmt/format.h>

namespace longspan {

std::string_view name(Promise promise) {
  switch (promise) {
    case Promise::kDeviceLengths: return "device_lengths";
    case Promise::kUniformLengths: return "uniform_lengths";
    case Promise::kCompactLengths: return "compact_lengths";
    case Promise::kPitchedAllGather: return "pitched_all_gather";
  }
  return "";
}

std::string_view name(GuardPolicy policy) {
  return policy == GuardPolicy::kReport ? "report" : "trap";
}

Result<Promise> parse_promise(std::string_view text) {
  for (const Promise promise :
       {Promise::kUniformLengths, Promise::kCompactLengths, Promise::kPitchedAllGather}) {
    if (text == name(promise)) return promise;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("promise \"{}\" is unknown; allowed: uniform_lengths, compact_lengths, "
                           "pitched_all_gather",
                           text),
               "guard"};
}

Result<GuardPolicy> parse_guard_policy(std::string_view text) {
  for (const GuardPolicy policy : {GuardPolicy::kReport, GuardPolicy::kTrap}) {
    if (text == name(policy)) return policy;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("guards \"{}\": allowed are report and trap", text), "guard"};
}

}  // namespace longspan
