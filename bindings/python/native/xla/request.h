// What a caller asks beside the problem.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "longspan/engine.h"
#include "longspan/plan_record.h"
#include "registry.h"

namespace longspan::xla {

/// Written as `key=value` pairs separated by spaces, like a problem; every key has a default. Or
/// `plan=` and the bytes of a plan, which say all of it.
struct Request {
  int ranks = 1;                   // "ranks"
  std::string strategy = "ring";   // "strategy": ring or all_gather; unused by one rank
  std::string partition = "auto";  // "partition"
  Routing forward, backward;       // "forward", "backward": auto, prefer:NAME, require:NAME, ...
  bool gradients = true;           // "gradients": true or false
  std::optional<PlanRecord> plan;

  Topology topology() const;
};

/// invalid_argument names key, value and what is allowed. Errors of PlanRecord::from_bytes.
Result<Request> parse_request(std::string_view text);

/// parse_request, for the problem that a plan is of.
Result<Request> request_of(const Asked& asked);

/// The engine's options of a request, strategies included where there are several ranks. A plan
/// needs none.
Options options_of(const Request& request);

}  // namespace longspan::xla
