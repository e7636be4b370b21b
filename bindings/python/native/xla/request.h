// What a caller asks beside the problem.
#pragma once

#include <string>
#include <string_view>

#include "longspan/engine.h"

namespace longspan::xla {

/// Written as `key=value` pairs separated by spaces, like a problem; every key has a default.
struct Request {
  int ranks = 1;                   // "ranks"
  std::string strategy = "ring";   // "strategy": ring or all_gather; unused by one rank
  std::string partition = "auto";  // "partition"
  Routing forward, backward;       // "forward", "backward": auto, prefer:NAME, require:NAME, ...
  bool gradients = true;           // "gradients": true or false
};

/// invalid_argument names key, value and what is allowed.
Result<Request> parse_request(std::string_view text);

/// The engine's options of a request, strategies included where there are several ranks.
Options options_of(const Request& request);

}  // namespace longspan::xla
