#include "providers/cudnn/pieces.h"

#include <algorithm>

namespace longspan::cudnn {
namespace {

Piece without_idle_edges(Piece p) {
  if (p.band.lo <= -(p.rows.nq - 1)) p.band.lo = -kUnbounded;
  if (p.band.hi >= p.rows.nk - 1) p.band.hi = kUnbounded;
  return p;
}

Piece trimmed(const PlacedTile& placed) {
  const Tile& tile = placed.tile;
  const Tile rest = trim(tile);
  const int64_t nq = rest.q.size();
  const int64_t nk = rest.k.size();
  if (nq == 0 || nk == 0) return {};
  return without_idle_edges({{.q_row = placed.q_row + (rest.q.begin - tile.q.begin) / tile.q.stride,
                              .k_row = placed.k_row + (rest.k.begin - tile.k.begin) / tile.k.stride,
                              .nq = nq,
                              .nk = nk,
                              .tokens = {.sequence = tile.sequence,
                                         .q_begin = rest.q.begin,
                                         .q_stride = rest.q.stride,
                                         .k_begin = rest.k.begin,
                                         .k_stride = rest.k.stride}},
                             rest.band});
}

/// Keys before `hi` are hidden on the left alone; from there on the band ends on the diagonal.
void append_parts(Piece p, std::vector<Piece>& pieces) {
  const int64_t hi = p.band.hi;
  p.part = true;
  Piece before = p;
  before.band.hi = kUnbounded;
  before.rows.nk = hi;
  // Query i sees a key before hi only if i + lo < hi.
  if (p.cuts_left()) before.rows.nq = std::min(p.rows.nq, hi - p.band.lo);
  pieces.push_back(without_idle_edges(before));
  Piece from = p;
  from.rows.tokens.k_begin += hi * from.rows.tokens.k_stride;
  from.rows.k_row += hi;
  from.rows.nk -= hi;
  from.band.hi = 0;
  if (p.cuts_left()) from.band.lo -= hi;
  pieces.push_back(without_idle_edges(from));
}

}  // namespace

bool cheaper_in_parts(Band band, int64_t nq, int64_t nk, int64_t heads) {
  // In pairs of one head: a row is read and written once more, and a dozen kernels are launched.
  constexpr int64_t kRow = 200;
  constexpr int64_t kLaunches = 12'000'000;
  const int64_t hidden = nq * nk - area(band, nq, nk);
  return hidden > kRow * nq + kLaunches / heads;
}

std::vector<Piece> make_pieces(const TileProblem& problem, std::span<const PlacedTile> tiles) {
  std::vector<Piece> pieces;
  for (const PlacedTile& tile : tiles) {
    const Piece p = trimmed(tile);
    if (p.rows.nq == 0) continue;
    const bool may_skip =
        problem.direction == Direction::kForward || !p.cuts_right() || p.band.hi == 0;
    const bool alone =
        may_skip || (tiles.size() <= kFewTiles &&
                     !cheaper_in_parts(p.band, p.rows.nq, p.rows.nk, problem.heads_q));
    if (alone) {
      pieces.push_back(p);
    } else {
      append_parts(p, pieces);
    }
  }
  for (Piece& p : pieces) {
    EntryTokens& tokens = p.rows.tokens;
    tokens.lo = std::max(p.band.lo, -kUnbounded);
    tokens.hi = std::min(p.band.hi, kUnbounded);
    if (!problem.features.device_lengths && problem.features.bias == Bias::kNone) tokens = {};
  }
  return pieces;
}

}  // namespace longspan::cudnn
