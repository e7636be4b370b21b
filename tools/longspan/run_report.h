// The report of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "group.h"
#include "outcome.h"
#include "verify.h"

namespace longspan::tool {

struct RunSeconds {
  double inputs = 0;
  double check = 0;
  double total = 0;
};

struct RunReport {
  const Arguments* arguments = nullptr;
  const Inputs* inputs = nullptr;
  const GroupResults* results = nullptr;
  Topology topology;
  int threads = 1;  // that computed, per process
  std::vector<NamedMeasure> measures;
  std::vector<Check> checks;
  std::vector<std::string> notes;
  RunSeconds seconds;
};

Outcome report_run(const RunReport& report);

/// "forward": {"strategy", "provider", "partition", reasons} of a selection.
Json direction_json(const Selection& selection, const Explanation& explanation);
/// The same, for people.
std::string direction_text(const char* direction, const Selection& selection);

/// Of backward: null where there is none, and a line that says so.
Json backward_json(const Explanation& explanation);
std::string backward_text(const Explanation& explanation);

/// "12,345,678"
std::string grouped(int64_t value);

}  // namespace longspan::tool
