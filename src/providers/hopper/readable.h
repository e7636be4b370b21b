// Operands as TMA reads them.
#pragma once

#include <span>

#include "longspan/provider.h"

namespace longspan::hopper {

/// Whether TMA can read the tiles' rows of queries, or of keys with `keys`, where they are.
bool in_place(const TensorView& view, std::span<const PlacedTile> tiles, bool keys);

/// The view that TMA reads: the caller's, or a packed copy of it, with the opposite sign if
/// `negated`, at `scratch`. `keys`: whether rows are keys of the tiles.
Result<TensorView> readable(const TensorView& view, std::span<const PlacedTile> tiles, bool keys,
                            bool negated, void* scratch, Stream stream);

}  // namespace longspan::hopper
