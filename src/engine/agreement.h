// Cold calls: do all ranks mean the same?
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/communicator.h"
#include "longspan/engine.h"
#include "longspan/plan_record.h"

namespace longspan {

/// One fact that must be equal on all ranks.
struct Fact {
  std::string_view field;
  uint64_t hash = 0;
};

uint64_t hash_bytes(std::string_view bytes);

/// Library version, every key of the problem, every option that changes the schedule, and the bytes
/// of the plan where one is loaded.
std::vector<Fact> facts(const Problem& problem, const Options& options, const Topology& topology,
                        std::string_view plan);

/// Collective; every rank passes the same fields in the same order, and whether it has failed on
/// its own. The words of all ranks, for compare_facts().
Result<std::vector<uint64_t>> exchange_facts(Communicator& communicator,
                                             std::span<const Fact> facts, bool failed,
                                             std::chrono::milliseconds deadline);

/// invalid_argument naming the first rank that has failed, else the first field that differs: the
/// same on every rank that has not failed itself.
Status compare_facts(std::span<const Fact> facts, std::span<const uint64_t> all_ranks);

}  // namespace longspan
