// Bytes of workspace that cuDNN asks for, known without asking it.
#pragma once

#include <cstdint>

#include "longspan/provider.h"
#include "providers/cudnn/groups.h"

namespace longspan::cudnn {

struct CudnnBytes {
  int64_t frontend = 0;  // what cudnn-frontend adds to the engine's
  int64_t engine = 0;    // an upper bound, tight but for a few KiB
  int64_t total() const { return frontend + engine; }
};

/// Of one execution, for cuDNN 9.19 on compute capability 9.0.
CudnnBytes cudnn_bytes(const TileProblem& problem, const Group& group);

/// Covers any one tile of the problem's capacity, and all of its rows in one ragged group.
int64_t cudnn_budget(const TileProblem& problem);

/// Whether backward writes all scores of a tile to memory: in a fixed order, and for the gradient
/// of a bias.
bool writes_scores(const TileProblem& problem);

/// Of these scores, for the largest tile.
int64_t score_bytes(const TileProblem& problem);

}  // namespace longspan::cudnn
