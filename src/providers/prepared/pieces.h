// Tiles as the shapes that builds compute. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspan/provider.h"
#include "providers/prepared/manifest.h"
#include "providers/rows/entries.h"

namespace longspan::prepared {

/// The keys that queries see, counted from the diagonal that ends in the bottom right corner.
struct Sight {
  Shape shape = Shape::kFull;
  int64_t left = 0, right = 0;  // of kWindow
  bool operator==(const Sight&) const = default;
};

/// Rows of a trimmed tile, or a part of one. Every row sees a key and every key is seen.
struct Piece {
  rows::Entry rows;
  Sight sight;
  bool part = false;  // another piece has keys of this one
};

/// Covers every visible pair of the tiles once. A band that ends right of the diagonal is cut in
/// two by its queries: up to the last key, and those that see all keys. Unless `windows`: then a
/// window computes it at once where results are `whole` in backward.
std::vector<Piece> make_pieces(const TileProblem& problem, std::span<const PlacedTile> tiles,
                               bool windows);

}  // namespace longspan::prepared
