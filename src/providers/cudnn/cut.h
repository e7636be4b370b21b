// What is there of an entry in a call that brings lengths. On the host and on devices.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "mask/tokens.h"
#include "providers/rows/entries.h"

namespace longspan::cudnn {

using rows::EntryTokens;

struct EntryRows {
  int64_t nq = 0, nk = 0;
};

/// The first rows of an entry of `whole` rows, such that every row left sees a key and every key is
/// seen, as in entries of lengths that are known ahead; none on either side where nothing is seen.
/// `length_q` and `length_k`: of the entry's sequence.
LONGSPAN_HOST_DEVICE inline EntryRows cut(const EntryRows& whole, const EntryTokens& tokens,
                                          int64_t length_q, int64_t length_k) {
  const int64_t nq = tokens_below(tokens.q_begin, tokens.q_stride, whole.nq, length_q);
  const int64_t nk = tokens_below(tokens.k_begin, tokens.k_stride, whole.nk, length_k);
  // Queries from nk - lo on see no key, keys from nq + hi on no query sees: lo <= 0 <= hi.
  const int64_t queries = nk - tokens.lo < nq ? nk - tokens.lo : nq;
  const int64_t keys = nq + tokens.hi < nk ? nq + tokens.hi : nk;
  if (nq == 0 || nk == 0) return {};
  return {queries, keys};
}

}  // namespace longspan::cudnn
