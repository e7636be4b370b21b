// Rows of whole results that no execution writes. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "longspan/mask.h"
#include "longspan/provider.h"
#include "providers/cudnn/groups.h"

namespace longspan::cudnn {

/// Rows of the caller's tensors, ascending.
struct Blanks {
  std::vector<Range> q;
  std::vector<Range> k;  // backward alone
};

/// What must be blank before the groups of the tiles are executed: queries without keys, keys
/// without queries, and all where groups add to each other or leave heads of keys out.
Blanks blanks_of(const TileProblem& problem, std::span<const PlacedTile> tiles,
                 std::span<const Group> groups);

}  // namespace longspan::cudnn
