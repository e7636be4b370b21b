// Which tiles one execution of cuDNN computes, and under which mask. Pure functions of the tiles.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "longspan/provider.h"
#include "providers/rows/blanks.h"
#include "providers/rows/entries.h"

namespace longspan::cudnn {

using rows::Entry;
using rows::EntryTokens;
using rows::key_heads;

/// Kept pairs: q + shift - left < k <= q + shift + right, as cuDNN counts: its left bound excludes.
/// shift is 0, or the entry's keys minus its queries when bottom_right.
struct Mask {
  std::optional<int64_t> left;
  std::optional<int64_t> right;
  bool bottom_right = false;
  bool operator==(const Mask&) const = default;
};

/// What one execution computes. The query rows of its entries are disjoint and ascend, and so do
/// the key rows.
struct Group {
  Mask mask;
  bool ragged = false;  // entries of any length; else all are alike and lie at equal distances
  bool padded = false;  // the graph reads true lengths from the device; ragged ones always do
  // As declared to cuDNN. Ragged groups round up, which costs nothing and lets them share graphs.
  int64_t batch = 1;
  int64_t sq = 0, skv = 0;
  int64_t total_q = 0, total_k = 0;  // bounds of the rows of all entries; 0: not declared
  std::vector<Entry> entries;
  bool adds_dq = false;  // whole results: other groups compute gradients of the same queries

  int64_t rows_q() const;
  int64_t rows_k() const;
  /// From the first row of the first entry to the last row of the last one.
  int64_t span_q() const;
  int64_t span_k() const;
};

/// Covers every visible pair of the tiles exactly once. Every row of an entry sees a key and every
/// key is seen, so cuDNN writes all of its outputs. Backward cuts bands in two where cuDNN would
/// compute the whole rectangle. With device lengths all groups are ragged, and their masks count
/// from the top left, so that entries may lose their last rows. With a bias every entry is a group.
std::vector<Group> make_groups(const TileProblem& problem, std::span<const PlacedTile> tiles);

/// Most entries of a group, rounded up ones included.
inline constexpr int64_t kMostEntries = 1024;

/// Whether workspace of the backward of ragged groups grows with their rows alone: cudnn-frontend
/// ignores bounds of them unless dims are multiples of 16, and the deterministic backward writes
/// all scores of the declared rectangle. Else only the smallest tiles are ragged there.
bool bounds_totals(const TileProblem& problem);

/// What ragged groups declare: powers of two, and for the rows of all entries together no more than
/// the capacity rounded up by an eighth at most.
int64_t length_bucket(int64_t length);
int64_t rows_bucket(int64_t rows);

/// What must be blank before the groups of the tiles are executed: also all queries where groups
/// add to each other.
rows::Blanks blanks_of(const TileProblem& problem, std::span<const PlacedTile> tiles,
                       std::span<const Group> groups);

}  // namespace longspan::cudnn
