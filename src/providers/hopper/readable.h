// Operands as TMA reads them.
#pragma once

#include <span>

#include "longspan/provider.h"

namespace longspan::hopper {

/// Whether TMA can read the tiles' rows of queries, or of keys with `keys`, where they are.
bool in_place(const TensorView& view, std::span<const PlacedTile> tiles, bool keys);

/// The view that TMA reads: the caller's, or a packed copy at `scratch` of its first `capacity`
/// rows, behind which a last page may have more; with the opposite sign if `negated`. `keys`:
/// whether rows are keys of the tiles.
Result<TensorView> readable(const TensorView& view, int64_t capacity,
                            std::span<const PlacedTile> tiles, bool keys, bool negated,
                            void* scratch, Stream stream);

}  // namespace longspan::hopper
