// The times of several providers for one problem, in turns.
#pragma once

#include <string>
#include <vector>

#include "longspan/engine.h"
#include "longspan/routing_table.h"

namespace longspan::tool {

/// What is timed where.
struct CaseTask {
  std::string problem;
  std::vector<std::string> providers;  // those that decline are left out
  Device device;
  Options options;  // routing is replaced; backward "none": forward alone
};

/// A row for each direction that two providers at least have offered. Providers take turns, one
/// direction at a time, so that clocks and power are alike for all: a forward right behind a
/// backward runs at the clocks that the latter left.
Result<std::vector<RoutingRow>> time_case(const CaseTask& task);

}  // namespace longspan::tool
