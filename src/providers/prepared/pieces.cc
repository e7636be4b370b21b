#include "providers/prepared/pieces.h"

#include <algorithm>

namespace longspan::prepared {
namespace {

rows::Entry rows_of(const PlacedTile& placed, const Tile& rest) {
  const Tile& tile = placed.tile;
  return {.q_row = placed.q_row + (rest.q.begin - tile.q.begin) / tile.q.stride,
          .k_row = placed.k_row + (rest.k.begin - tile.k.begin) / tile.k.stride,
          .nq = rest.q.size(),
          .nk = rest.k.size(),
          .tokens = {.sequence = tile.sequence}};
}

/// Queries from nk - hi on see all keys; those before end on the diagonal.
void append_halves(const rows::Entry& rows, int64_t hi, std::vector<Piece>& pieces) {
  Piece before{.rows = rows, .sight = {Shape::kCausal}, .part = true};
  before.rows.nq = rows.nk - hi;
  pieces.push_back(before);
  Piece rest{.rows = rows, .part = true};
  rest.rows.q_row += before.rows.nq;
  rest.rows.nq -= before.rows.nq;
  pieces.push_back(rest);
}

/// `rest` is trimmed, so its band holds both corners: the first query and key, the last ones too.
void append(const rows::Entry& rows, Band band, bool prefers_window, std::vector<Piece>& pieces) {
  const bool cuts_left = band.lo > -(rows.nq - 1);
  const bool cuts_right = band.hi < rows.nk - 1;
  const int64_t diagonal = rows.nk - rows.nq;
  if (!cuts_left && !cuts_right) {
    pieces.push_back({.rows = rows});
  } else if (!cuts_left && band.hi == diagonal) {
    pieces.push_back({.rows = rows, .sight = {Shape::kCausal}});
  } else if (!cuts_left && !prefers_window) {
    append_halves(rows, band.hi, pieces);
  } else {
    // Edges that hide nothing stand where they would begin to.
    const int64_t lo = std::max(band.lo, -(rows.nq - 1));
    const int64_t hi = std::min(band.hi, rows.nk - 1);
    pieces.push_back({.rows = rows, .sight = {Shape::kWindow, diagonal - lo, hi - diagonal}});
  }
}

}  // namespace

std::vector<Piece> make_pieces(const TileProblem& problem, std::span<const PlacedTile> tiles,
                               bool windows) {
  const bool adds_keys = problem.features.whole && problem.direction == Direction::kBackward;
  std::vector<Piece> pieces;
  for (const PlacedTile& placed : tiles) {
    const Tile rest = trim(placed.tile);
    if (rest.q.size() == 0 || rest.k.size() == 0) continue;
    append(rows_of(placed, rest), rest.band, windows && adds_keys, pieces);
  }
  return pieces;
}

}  // namespace longspan::prepared
