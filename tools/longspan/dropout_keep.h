// The mask that dropout draws, as a tensor of a file.
#pragma once

#include <cstddef>
#include <vector>

#include "longspan/problem.h"

namespace longspan::tool {

/// Largest mask that is written.
inline constexpr int64_t kMostKeepBytes = int64_t{64} << 20;

/// Bytes of the mask: q_length x k_length of each sequence, times the query heads. Saturates above
/// kMostKeepBytes.
int64_t keep_bytes(const Problem& problem);

/// 1 where a pair is kept and 0 where it is dropped, whether the mask hides it or not: per sequence
/// and query head, row-major [q_length, k_length], one behind the other.
std::vector<std::byte> dropout_keep(const Problem& problem);

}  // namespace longspan::tool
