// What providers of every shape accept: one rule for consider and prepare, one check of a call's
// views, which looks at no memory behind them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "longspan/decline.h"
#include "longspan/provider.h"
#include "longspan/status.h"

namespace longspan {

/// The first limit that `problem` exceeds on any device, or none.
std::optional<Decline> refusal(const TileProblem& problem);

/// A refusal as the error that prepare returns.
Status preparable(const std::optional<Decline>& refusal);

/// Types of O, LSE, delta, slopes, largest logits and gradients: accumulator(dtype) alone, or f32
/// and f64 alike.
enum class Carries { kAccumulator, kAnyFloat };

/// invalid_argument unless views, tiles and workspace fit what was prepared.
Status fits(const TileProblem& problem, const ForwardTiles& tiles, Carries carries);
Status fits(const TileProblem& problem, const BackwardTiles& tiles, Carries carries);
Status fits(Workspace workspace, size_t needed);

/// The part of the above that looks at score terms, and at the tensors that they come with.
Status fits_terms(const TileProblem& problem, const ForwardTiles& tiles, Carries carries);
Status fits_terms(const TileProblem& problem, const BackwardTiles& tiles, Carries carries);

/// The key head of query head `head`.
inline int64_t key_head(const TileProblem& problem, int64_t head) {
  return (head + problem.group_offset) / problem.group;
}

/// Query heads [first, last) of key head `head`; empty when this rank holds none of its group.
inline Range query_heads(const TileProblem& problem, int64_t head) {
  const int64_t first = head * problem.group - problem.group_offset;
  const int64_t last = first + problem.group;
  return {std::max<int64_t>(first, 0), std::min(last, problem.heads_q)};
}

/// What of a tile is there in a call of these lengths. Its band stays: a tile only loses its last
/// tokens.
inline PlacedTile live(PlacedTile placed, const ActualLengths& lengths) {
  Tile& tile = placed.tile;
  const auto sequence = static_cast<size_t>(tile.sequence);
  if (!lengths.q.empty()) tile.q = clip(tile.q, lengths.q[sequence]);
  if (!lengths.k.empty()) tile.k = clip(tile.k, lengths.k[sequence]);
  return placed;
}

/// Query q sees key k in `band` iff key k sees query q in this one.
inline Band transposed(Band band) {
  return {-std::min(band.hi, kUnbounded), -std::max(band.lo, -kUnbounded)};
}

}  // namespace longspan
