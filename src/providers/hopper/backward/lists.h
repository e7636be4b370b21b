// A chunk as the lists that kernels take their work from. Pure: no device is needed.
#pragma once

#include <cstdint>
#include <vector>

#include "longspan/provider.h"
#include "providers/hopper/backward/chunks.h"
#include "providers/hopper/backward/layout.h"
#include "providers/hopper/backward/scratch.h"
#include "providers/hopper/work.h"

namespace longspan::hopper {

/// Lists count heads from the first of a chunk, so that chunks of other heads may share them.
struct Lists {
  std::vector<Region> regions;
  std::vector<Tokens> tokens;  // of the regions
  std::vector<Line> lines;
  std::vector<ScoreItem> scores;        // of one head; none where sums_values()
  std::vector<GradientItem> values;     // of all heads where sums_values(): dV, longest sums first
  std::vector<GradientItem> gradients;  // of all heads, as order_gradients() says
  int32_t head_blocks = 0;              // blocks of scratch of a head
};

/// Steps of 64 rows that an item sums.
int64_t steps_of(const GradientItem& item);

/// Whole results are written by the item that adds the last product to a row; the others leave FP32
/// sums, as merged results do.
Lists make_lists(const TileProblem& problem, const Parts& parts, const Chunk& chunk,
                 const GradientColumns& columns);

}  // namespace longspan::hopper
