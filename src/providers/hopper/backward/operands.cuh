// Where TMA finds rows of an operand.
#pragma once

#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/forward/tiles.cuh"

namespace longspan::hopper {

/// Row `row` of a head, both of the caller's view.
__device__ __forceinline__ Coordinates coordinates_of(const Operand& o, int row, int head) {
  return coordinates_of(o.tensor, row - o.first_row, head - o.first_head);
}

}  // namespace longspan::hopper
