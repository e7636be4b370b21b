// One direction of a call, made ready while it is cold.
#pragma once

#include "engine/call.h"
#include "longspan/engine.h"

namespace longspan {

/// Builds and proves the schedule of `rank`, and prepares what its steps need.
Result<Prepared> prepare_direction(const Setting& setting, Direction direction,
                                   const Selection& selection, const Options& options,
                                   const Device& device, int rank);

}  // namespace longspan
