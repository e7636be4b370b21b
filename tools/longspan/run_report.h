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
/// Of backward: null where there is none.
Json backward_json(const Explanation& explanation);

/// What runs and why, for people: partition, head slices where there are some, both directions.
std::string choice_text(const Explanation& explanation);

/// "12,345,678"
std::string grouped(int64_t value);

}  // namespace longspan::tool
