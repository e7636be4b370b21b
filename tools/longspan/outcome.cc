#include "outcome.h"

#include <cmath>

#include "longspan/version.h"

namespace longspan::tool {

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported: return kBadInput;
    case ErrorCode::kGuardFailed: return kCheckFailed;
    default: return kInternal;
  }
}

Json report_head(const std::string& status, const std::string& problem, int ranks,
                 const std::string& message) {
  return {{"status", status},
          {"problem", problem},
          {"ranks", ranks},
          {"version", LONGSPAN_VERSION},
          {"message", message}};
}

Json declines_json(const std::vector<NamedDecline>& declines) {
  Json list = Json::array();
  for (const NamedDecline& decline : declines) {
    list.push_back({{"name", decline.name},
                    {"direction", decline.direction},
                    {"code", name(decline.decline.code)},
                    {"detail", decline.decline.detail}});
  }
  return list;
}

Outcome failed(const Error& error, const std::string& problem, int ranks,
               const std::vector<NamedDecline>& declines) {
  const bool declined = error.code == ErrorCode::kUnsupported;
  Outcome outcome;
  outcome.exit_code = exit_code(error.code);
  const std::string status = declined                            ? "declined"
                             : outcome.exit_code == kCheckFailed ? "fail"
                                                                 : "error";
  outcome.json = report_head(status, problem, ranks, error.text());
  outcome.json["declines"] = declines_json(declines);
  outcome.error = "longspan: " + error.text() + "\n";
  return outcome;
}

bool replace_non_finite(Json& json) {
  if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    json = nullptr;
    return true;
  }
  bool found = false;
  if (json.is_structured()) {
    for (Json& element : json) found = replace_non_finite(element) || found;
  }
  return found;
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace longspan::tool
