// What a command leaves behind: exit code, JSON and text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "longspan/decline.h"
#include "longspan/status.h"

namespace longspan::tool {

using Json = nlohmann::ordered_json;

inline constexpr int kPass = 0;
inline constexpr int kCheckFailed = 1;
inline constexpr int kBadInput = 2;  // usage, input or a decline
inline constexpr int kInternal = 3;  // or a lost peer

struct Outcome {
  int exit_code = kPass;
  Json json;
  std::string text;   // for people
  std::string error;  // for standard error
};

int exit_code(ErrorCode code);

/// The fields that every report starts with.
Json report_head(const std::string& status, const std::string& problem, int ranks,
                 const std::string& message);

Json declines_json(const std::vector<NamedDecline>& declines);

/// The outcome of an error: status declined for unsupported, else error.
Outcome failed(const Error& error, const std::string& problem, int ranks,
               const std::vector<NamedDecline>& declines = {});

/// Replaces NaN and infinities by null; true when there were any.
bool replace_non_finite(Json& json);

/// The text of a JSON report. Bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& json);

}  // namespace longspan::tool
