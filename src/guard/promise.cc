#include "longspan/promise.h"

#include <fmt/format.h>

namespace longspan {

std::string_view name(Promise promise) {
  return promise == Promise::kDeviceLengths ? "device_lengths" : "uniform_lengths";
}

std::string_view name(GuardPolicy policy) {
  return policy == GuardPolicy::kReport ? "report" : "trap";
}

Result<Promise> parse_promise(std::string_view text) {
  if (text == name(Promise::kUniformLengths)) return Promise::kUniformLengths;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("promise \"{}\" is unknown; allowed: uniform_lengths", text), "guard"};
}

Result<GuardPolicy> parse_guard_policy(std::string_view text) {
  for (const GuardPolicy policy : {GuardPolicy::kReport, GuardPolicy::kTrap}) {
    if (text == name(policy)) return policy;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("guards \"{}\": allowed are report and trap", text), "guard"};
}

}  // namespace longspan
