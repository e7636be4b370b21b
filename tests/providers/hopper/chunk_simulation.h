// Chunks of a backward call, run on sets of pairs instead of numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "longspan/provider.h"

namespace longspan::hopper {

/// Fails unless chunks of at most `units` units sum every visible pair once into each gradient,
/// from blocks of scratch that were written, and begin and end every row as they should.
void check_chunks(const TileProblem& problem, const std::vector<PlacedTile>& tiles, int64_t units);

}  // namespace longspan::hopper
