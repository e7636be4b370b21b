// In which order gradients are summed, so that what is read twice is read twice from L2. Pure.
#pragma once

#include "providers/hopper/backward/lists.h"

namespace longspan::hopper {

/// Orders tiles of gradients, and the blocks that each sums. dQ and dK read the same dS, which is
/// larger than L2: where their sums begin together they read block (q, k), by numbers of blocks, at
/// the same time, q - k steps (of a cycle) after their beginning. dV comes last where that leaves
/// no long sums for the end; else the longest sums come first, whatever they are of.
void order_gradients(const TileProblem& problem, const Chunk& chunk, Lists& lists);

/// Puts the items of Lists::values in the order in which they are drawn, longest ones first. In
/// chunks of a cut tile long sums are split.
void order_values(const Chunk& chunk, Lists& lists);

}  // namespace longspan::hopper
