// What explain, schedule and simulate look at: a problem cut over ranks, and its schedules.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "arguments.h"
#include "longspan/engine.h"

namespace longspan::tool {

/// Declines what no provider computes, whatever the strategy: steps and costs would be those of
/// another problem.
Status check_keys(const Problem& problem, bool forward_only);

/// "softcap=50", ...: the keys that ask for more than shapes, a mask and a scale, where they are
/// not at their default.
std::vector<std::string> feature_texts(const Problem& problem);

/// Schedules of the given ranks for one direction, built on all cores.
Result<std::vector<Schedule>> build_schedules(const Setting& setting, const Strategy& strategy,
                                              Direction direction, const std::vector<int>& ranks);

std::vector<int> all_ranks(int ranks);
/// At most `most` ranks, evenly spread, the first and the last among them.
std::vector<int> sample_ranks(int ranks, int most);

/// "1.23 ms"
std::string duration_text(double seconds);
/// "1.50 MiB"
std::string bytes_text(double bytes);

}  // namespace longspan::tool
