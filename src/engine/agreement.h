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

namespace longspan {

/// One fact that must be equal on all ranks.
struct Fact {
  std::string_view field;
  uint64_t hash = 0;
};

uint64_t hash_bytes(std::string_view bytes);
uint64_t hash_schedule(const Schedule& schedule);

/// Library version, every key of the problem, and every option that changes the schedule.
std::vector<Fact> facts(const Problem& problem, const Options& options, const Topology& topology);

/// Collective; every rank passes the same fields in the same order. `mine` is this rank's own
/// error, if it has one: it is returned here, and the others learn that the rank has failed.
/// invalid_argument naming the first field that differs, on every rank.
Status agree(Communicator& communicator, std::span<const Fact> facts, const Status& mine,
             std::chrono::milliseconds deadline);

}  // namespace longspan
