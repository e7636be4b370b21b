// Tiles without rows and keys that see nothing, cut where that lets cuDNN skip.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspan/provider.h"
#include "providers/cudnn/groups.h"

namespace longspan::cudnn {

/// A part of a tile. Edges of the band that hide nothing are unbounded; the others satisfy
/// lo <= 0 <= hi.
struct Piece {
  Entry rows;
  Band band;
  bool part = false;  // another piece has queries of this one

  bool cuts_left() const { return band.lo > -kUnbounded; }
  bool cuts_right() const { return band.hi < kUnbounded; }
};

/// In the order of the tiles; empty ones have none.
std::vector<Piece> make_pieces(const TileProblem& problem, std::span<const PlacedTile> tiles);

/// Whether backward of a tile is cheaper in two parts, one launch more but no hidden pairs: cuDNN
/// computes the whole rectangle when the band ends right of the diagonal.
bool cheaper_in_parts(Band band, int64_t nq, int64_t nk, int64_t heads);

/// More tiles than this are a pack of sequences: parts of one kind are joined whatever their
/// lengths are, so that neither launches nor graphs grow with their number.
inline constexpr size_t kFewTiles = 4;

}  // namespace longspan::cudnn
