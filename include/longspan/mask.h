// Which query sees which key: bands of the diagonal offset, and rectangles cut out of them.
//
// A query q sees a key k iff lo <= k - q <= hi, both counted from the start of their own sequence.
// Every mask is such a band: top-left causal (-inf, 0], bottom-right causal (-inf, Lk - Lq], none
// (-inf, inf). Cutting a rectangle out of a band is a translation, so the pieces that a partition
// makes are bands again. Pure values; every function is thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace longspan {

/// Band edges at or beyond this magnitude are unbounded. Translation keeps them so.
inline constexpr int64_t kUnbounded = int64_t{1} << 61;

struct Band {
  int64_t lo = -kUnbounded;
  int64_t hi = kUnbounded;

  bool sees(int64_t q, int64_t k) const { return lo <= k - q && k - q <= hi; }
  bool operator==(const Band&) const = default;
};

/// Tokens begin, begin + stride, ... below end. Canonical: end == begin + size() * stride.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stride = 1;

  int64_t size() const { return end <= begin ? 0 : (end - begin + stride - 1) / stride; }
  int64_t at(int64_t index) const { return begin + index * stride; }
  /// The tokens with index [first, last) of this interval.
  Interval slice(int64_t first, int64_t last) const {
    return {at(first), at(first) + (last - first) * stride, stride};
  }
  bool operator==(const Interval&) const = default;
};

/// Tokens of `interval` below `limit`.
Interval clip(Interval interval, int64_t limit);
/// Tokens of `interval` in [begin, end).
Interval between(Interval interval, int64_t begin, int64_t end);

/// A rectangle of one sequence's score matrix. `band` is local: it relates the index inside q to
/// the index inside k.
struct Tile {
  int32_t sequence = 0;
  Interval q;
  Interval k;
  Band band;

  bool operator==(const Tile&) const = default;
};

/// Restricts a sequence's band to the tokens of q and k, in local indices. Intervals of stride s
/// (striped partitions) need the same stride on both sides, or at most one token on a side.
Band cut(Band band, Interval q, Interval k);

/// True when no pair of the nq x nk rectangle lies in the local band.
bool empty(Band band, int64_t nq, int64_t nk);
inline bool empty(const Tile& tile) { return empty(tile.band, tile.q.size(), tile.k.size()); }

/// True when every pair of the nq x nk rectangle lies in the local band.
bool full(Band band, int64_t nq, int64_t nk);
inline bool full(const Tile& tile) { return full(tile.band, tile.q.size(), tile.k.size()); }

/// Number of pairs of the nq x nk rectangle inside the local band. Closed form, exact while
/// nq * nk < 2^62.
int64_t area(Band band, int64_t nq, int64_t nk);
inline int64_t area(const Tile& tile) { return area(tile.band, tile.q.size(), tile.k.size()); }

/// Index range [first, last) of the keys that query index q of an nk-wide rectangle sees.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const Range&) const = default;
};
Range visible_keys(Band band, int64_t q, int64_t nk);

/// The smallest rectangle that holds every visible pair: queries that see no key and keys that no
/// query sees are dropped at both ends. An empty tile becomes one without queries and keys.
Tile trim(const Tile& tile);

/// cut and trim in one call: the tile of sequence `sequence` that queries q and keys k span.
Tile make_tile(int32_t sequence, Band sequence_band, Interval q, Interval k);

}  // namespace longspan
