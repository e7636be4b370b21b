// The choice of strategies by modelled time.
#pragma once

#include <vector>

#include "longspan/engine.h"

namespace longspan {

/// Ranks that stand for all when costs are compared and providers asked.
std::vector<int> sample_ranks(int ranks);

/// The modelled time of one direction by the setting's strategy: that of the slowest sampled rank.
Result<double> modelled_seconds(const Setting& setting, Direction direction, const Rates& rates);

/// Writes the pair with the least modelled time, its head slices and why into `explanation`; none
/// of a direction where all decline. What forward keeps depends on backward, so both are chosen
/// together. `setting` ends with the head slices chosen, its strategies in any state.
Status choose_strategies(Setting& setting, const Device& device, const Options& options,
                         Explanation& explanation);

}  // namespace longspan
