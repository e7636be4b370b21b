// The table of conformance cases: fixed ones, and draws that depend on their seed alone.
#pragma once

#include <string>
#include <vector>

#include "testkit/conformance.h"

namespace longspan::testkit {

/// Problem texts without dtype, each for a feature: head counts, dims, layouts, padding, lengths,
/// alignment.
const std::vector<std::string>& features();

/// Every pair of strategies on every number of ranks, each on a drawn problem, partition, provider
/// and dtype. Where hybrid does not fit the ranks, the case states the decline.
std::vector<Case> strategy_cases();

/// Every feature in every dtype on drawn ranks, strategies, partitions and providers.
std::vector<Case> feature_cases();

/// Every option alone: with each mask in every dtype, and on many shapes.
std::vector<Case> option_cases();

/// Problems of the random generator.
std::vector<Case> random_cases();

/// What must be declined, and with which code.
std::vector<Case> declined_cases();

}  // namespace longspan::testkit
