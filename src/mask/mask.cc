#include "longspan/mask.h"

#include <algorithm>

namespace longspan {
namespace {

int64_t floor_div(int64_t a, int64_t b) {  // b > 0
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

bool unbounded_lo(int64_t lo) { return lo <= -kUnbounded; }
bool unbounded_hi(int64_t hi) { return hi >= kUnbounded; }

/// The same band with edges that can be added to coordinates without overflow.
Band summable(Band band) {
  return {std::clamp(band.lo, -kUnbounded, kUnbounded),
          std::clamp(band.hi, -kUnbounded, kUnbounded)};
}

/// Pairs of the nq x nk rectangle with j - i <= x.
int64_t pairs_up_to(int64_t x, int64_t nq, int64_t nk) {
  x = std::clamp(x, -nq, nk);
  // Query i sees clamp(i + x + 1, 0, nk) keys: none before `some`, all from `all` on.
  const int64_t some = std::clamp(-x, int64_t{0}, nq);
  const int64_t all = std::clamp(nk - 1 - x, some, nq);
  const int64_t rising = (all - some) * ((some + x + 1) + (all + x)) / 2;
  return rising + (nq - all) * nk;
}

}  // namespace

Interval clip(Interval interval, int64_t limit) {
  if (interval.end <= limit) return interval;
  if (interval.begin >= limit) return {interval.begin, interval.begin, interval.stride};
  return interval.slice(0, (limit - interval.begin + interval.stride - 1) / interval.stride);
}

Interval between(Interval interval, int64_t begin, int64_t end) {
  const Interval below = clip(interval, end);
  if (begin <= below.begin) return below;
  const int64_t size = below.size();
  return below.slice(std::min(size, ceil_div(begin - below.begin, below.stride)), size);
}

Band cut(Band band, Interval q, Interval k) {
  band = summable(band);
  const int64_t shift = k.begin - q.begin;
  // A side of one token has no stride of its own.
  const int64_t stride = k.size() > 1 ? k.stride : q.stride;
  Band local;
  if (!unbounded_lo(band.lo)) local.lo = ceil_div(band.lo - shift, stride);
  if (!unbounded_hi(band.hi)) local.hi = floor_div(band.hi - shift, stride);
  return local;
}

bool empty(Band band, int64_t nq, int64_t nk) {
  if (nq <= 0 || nk <= 0 || band.lo > band.hi) return true;
  return band.hi < -(nq - 1) || band.lo > nk - 1;
}

bool full(Band band, int64_t nq, int64_t nk) {
  return nq > 0 && nk > 0 && band.lo <= -(nq - 1) && band.hi >= nk - 1;
}

int64_t area(Band band, int64_t nq, int64_t nk) {
  if (empty(band, nq, nk)) return 0;
  const int64_t below = unbounded_lo(band.lo) ? 0 : pairs_up_to(band.lo - 1, nq, nk);
  return pairs_up_to(band.hi, nq, nk) - below;
}

Range visible_keys(Band band, int64_t q, int64_t nk) {
  band = summable(band);
  const int64_t first = std::clamp(q + band.lo, int64_t{0}, nk);
  return {first, std::clamp(q + band.hi + 1, first, nk)};
}

Tile trim(const Tile& tile) {
  const int64_t nq = tile.q.size();
  const int64_t nk = tile.k.size();
  const Band band = summable(tile.band);
  if (empty(band, nq, nk)) return {tile.sequence, tile.q.slice(0, 0), tile.k.slice(0, 0), band};
  const int64_t q_first = std::max(int64_t{0}, -band.hi);
  const int64_t q_last = std::min(nq - 1, nk - 1 - band.lo);
  const int64_t k_first = std::max(int64_t{0}, q_first + band.lo);
  const int64_t k_last = std::min(nk - 1, q_last + band.hi);
  Tile result{tile.sequence, tile.q.slice(q_first, q_last + 1), tile.k.slice(k_first, k_last + 1),
              band};
  if (!unbounded_lo(band.lo)) result.band.lo -= k_first - q_first;
  if (!unbounded_hi(band.hi)) result.band.hi -= k_first - q_first;
  return result;
}

Tile make_tile(int32_t sequence, Band sequence_band, Interval q, Interval k) {
  return trim({sequence, q, k, cut(sequence_band, q, k)});
}

}  // namespace longspan
