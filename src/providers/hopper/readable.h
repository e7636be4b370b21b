// Operands as TMA reads them.
#pragma once

#include <span>

#include "longspan/provider.h"

namespace longspan::hopper {

/// The view that TMA reads: the caller's, or a packed copy of it, with the opposite sign if
/// `negated`, at `scratch`. `keys`: whether rows are keys of the tiles.
Result<TensorView> readable(const TensorView& view, std::span<const PlacedTile> tiles, bool keys,
                            bool negated, void* scratch, Stream stream);

}  // namespace longspan::hopper
