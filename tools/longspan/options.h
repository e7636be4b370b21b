// Engine options and topology from the command line.
#pragma once

#include <string>
#include <vector>

#include "arguments.h"
#include "longspan/engine.h"

namespace longspan::tool {

/// Schedules of more ranks than this are not proved together at every cold call: the work grows
/// with the square of the ranks, since each of them proves all.
inline constexpr int kMostProvedRanks = 64;

/// Reads the file of --rates when there is one; the H200's rates otherwise.
Result<Rates> make_rates(const Arguments& arguments);
Result<Options> make_options(const Arguments& arguments);
/// The devices that --device names, one for each of `ranks` ranks: cpu, one GPU for all (cuda:N),
/// or all GPUs in turn (cuda).
Result<std::vector<Device>> make_devices(const Arguments& arguments, int ranks, int threads);
/// For schedule and simulate, which look at no device: cpu, or cuda: a GPU as the provider cudnn
/// takes it, whether there is one or not.
Result<Device> described_device(const std::string& text);
Result<Topology> make_topology(const Arguments& arguments);

/// The names that auto stands for, from a selection that is ok.
struct StrategyNames {
  std::string forward;
  std::string backward;
};
StrategyNames chosen_names(const Explanation& explanation);

}  // namespace longspan::tool
