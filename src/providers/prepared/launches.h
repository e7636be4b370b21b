// Which pieces one execution computes. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspan/provider.h"
#include "longspan/status.h"
#include "providers/prepared/choose.h"
#include "providers/prepared/pieces.h"

namespace longspan::prepared {

/// One run of a build. Query rows of the entries are disjoint and ascend, and so do key rows.
struct Launch {
  const Kernel* kernel = nullptr;
  Sight sight;
  bool packed = false;  // entries of any length; else all are alike and lie at equal distances
  std::vector<rows::Entry> entries;

  int64_t batch() const { return packed ? 1 : static_cast<int64_t>(entries.size()); }
  int64_t rows_q() const;
  int64_t rows_k() const;
  /// Rows of a batch entry: of all entries where packed.
  int64_t sq() const { return packed ? rows_q() : entries.front().nq; }
  int64_t sk() const { return packed ? rows_k() : entries.front().nk; }
};

/// Most entries of a launch.
inline constexpr int64_t kMostEntries = 1024;

/// Rows of one head that a buffer must hold when `rows` rows in `entries` entries are padded.
int64_t padded_rows(int64_t rows, int64_t entries, int64_t tile, bool packed);

/// Most padded rows of a launch of this capacity: those of one entry, and an eighth more. Packed
/// ones have room for a tile of each of many short entries, and at most twice the capacity.
int64_t most_padded_rows(int64_t capacity, int64_t tile, bool packed);

/// Launches of all pieces, as few as builds and buffers allow. internal when a build is missing.
Result<std::vector<Launch>> make_launches(const TileProblem& problem, const Builds& builds,
                                          std::span<const Piece> pieces);

}  // namespace longspan::prepared
