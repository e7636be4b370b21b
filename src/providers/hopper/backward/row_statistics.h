// LSE and delta as the kernels read them.
#pragma once

#include <cstdint>

#include "longspan/provider.h"

namespace longspan::hopper {

/// Of a row and head; x: LSE in units of log2, infinite where no key is seen, so that P is 0 there;
/// y: delta. Those of a head lie together.
struct RowStatistics {
  float lse_log2, delta;
};

/// Rows that may be read behind the last one of a head.
inline constexpr int64_t kStatisticsPadding = 128;

/// Loads the kernels ahead of their first launch, which may be captured.
Status load_statistics();

/// Writes those of all rows and heads to `to`, heads `rows` apart. delta is computed where the call
/// brings O instead.
Status make_statistics(const BackwardTiles& tiles, RowStatistics* to, int64_t rows);

}  // namespace longspan::hopper
