// Which pairs of a problem are visible: mask and window as one band, prefix and chunks as tiles.
#include <algorithm>
#include <cstddef>

#include "longspan/problem.h"

namespace longspan {
namespace {

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

const Sequence& at(const Problem& problem, int64_t sequence) {
  return problem.lengths.sequences[static_cast<size_t>(sequence)];
}

int64_t prefix_of(const Problem& problem, int64_t sequence) {
  if (problem.prefix.empty()) return 0;
  return std::min(problem.prefix[static_cast<size_t>(sequence)], at(problem, sequence).k_length);
}

Interval intersection(Interval a, Interval b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end)), 1};
}

}  // namespace

int64_t Problem::shift(const Sequence& sequence) const {
  return align == Align::kTopLeft ? 0 : sequence.k_length - sequence.q_length;
}

Band Problem::band(const Sequence& sequence) const {
  const int64_t s = shift(sequence);
  Band band;
  if (window_left >= 0) band.lo = s - window_left;
  if (window_right >= 0) band.hi = s + window_right;
  if (mask == MaskKind::kCausal) band.hi = std::min(band.hi, s);
  return band;
}

Range Problem::mask_tiles(int64_t sequence, Interval q) const {
  const int64_t first = prefix_of(*this, sequence) > 0 ? 0 : 1;
  if (chunk == 0 || q.size() == 0) return {first, 2};
  const int64_t s = shift(at(*this, sequence));
  const int64_t low = std::max<int64_t>(0, floor_divide(q.begin + s, chunk));
  const int64_t high = std::max<int64_t>(0, floor_divide(q.at(q.size() - 1) + s, chunk) + 1);
  // The prefix is tile 0, the chunks follow; chunks below the first are without tokens.
  return {first == 0 ? 0 : low + 1, high + 1};
}

MaskTile Problem::mask_tile(int64_t sequence, int64_t number) const {
  const Sequence& s = at(*this, sequence);
  const Interval queries{0, s.q_length, 1};
  const int64_t prefix_end = prefix_of(*this, sequence);
  if (number == 0) return {queries, {0, prefix_end, 1}, {}};
  const Interval keys{prefix_end, s.k_length, 1};
  if (chunk == 0) return {queries, keys, band(s)};
  const int64_t begin = (number - 1) * chunk;
  const int64_t diagonal = shift(s);
  return {intersection(queries, {begin - diagonal, begin + chunk - diagonal, 1}),
          intersection(keys, {begin, begin + chunk, 1}), band(s)};
}

int64_t Problem::visible_pairs(int64_t sequence, int64_t queries) const {
  const Interval first{0, std::min(queries, at(*this, sequence).q_length), 1};
  const Range tiles = mask_tiles(sequence, first);
  int64_t pairs = 0;
  for (int64_t i = tiles.first; i < tiles.last; ++i) {
    const MaskTile tile = mask_tile(sequence, i);
    const Interval q = intersection(tile.q, first);
    pairs += area(cut(tile.band, q, tile.k), q.size(), tile.k.size());
  }
  return pairs;
}

int64_t Problem::visible_pairs() const {
  int64_t pairs = 0;
  for (size_t i = 0; i < lengths.sequences.size(); ++i) {
    pairs += visible_pairs(static_cast<int64_t>(i), lengths.sequences[i].q_length);
  }
  return pairs;
}

}  // namespace longspan
