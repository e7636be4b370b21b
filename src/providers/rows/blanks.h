// Rows of whole results that no execution writes. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "longspan/mask.h"
#include "longspan/provider.h"
#include "providers/rows/entries.h"

namespace longspan::rows {

/// Rows of the caller's tensors, ascending.
struct Blanks {
  std::vector<Range> q;
  std::vector<Range> k;  // backward alone
};

/// What must be blank before the executions that write the rows of `written`: queries without keys,
/// keys without queries, all keys where heads of keys are left out, and all queries if wanted.
Blanks blanks_of(const TileProblem& problem, std::span<const PlacedTile> tiles,
                 std::span<const Entry> written, bool all_queries = false);

/// Entries of queries alone, then of keys alone.
std::vector<Entry> entries_of(const Blanks& blanks);

}  // namespace longspan::rows
