// Which pairs are visible, as the conventions word it: pair by pair, sharing nothing with tiles.
#pragma once

#include <cstdint>

#include "longspan/problem.h"

namespace longspan::testkit {

inline bool visible(const Problem& p, int64_t sequence, int64_t q, int64_t k) {
  const auto index = static_cast<size_t>(sequence);
  const Sequence& s = p.lengths.sequences[index];
  if (!p.prefix.empty() && k < p.prefix[index]) return true;
  const int64_t at = q + (p.align == Align::kBottomRight ? s.k_length - s.q_length : 0);
  if (p.mask == MaskKind::kCausal && k > at) return false;
  if (p.window_left >= 0 && k < at - p.window_left) return false;
  if (p.window_right >= 0 && k > at + p.window_right) return false;
  if (p.chunk == 0) return true;
  if (at < 0) return false;  // before the first chunk, where there are no keys
  return at / p.chunk == k / p.chunk;
}

inline int64_t keys_seen(const Problem& p, int64_t sequence, int64_t q) {
  int64_t count = 0;
  const int64_t keys = p.lengths.sequences[static_cast<size_t>(sequence)].k_length;
  for (int64_t k = 0; k < keys; ++k) count += visible(p, sequence, q, k) ? 1 : 0;
  return count;
}

}  // namespace longspan::testkit
