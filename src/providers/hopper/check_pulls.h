// What a caller may ask of a launch that brings keys and values itself. Pure: no device is needed.
#pragma once

#include <span>

#include "longspan/provider.h"

namespace longspan::hopper {

/// invalid_argument unless every key row of tiles with queries is pulled, once, and of a rank that
/// may lend. make_pull_work() takes nothing else.
Status check_pulls(std::span<const PlacedTile> tiles, std::span<const Pull> pulls);

}  // namespace longspan::hopper
