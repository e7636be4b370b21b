// How a backward call is cut into chunks whose P and dS fit a scratch of constant size. Pure: no
// device is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "longspan/provider.h"

namespace longspan::hopper {

/// Queries and keys of a tile that one chunk computes: [first, last) of each, multiples of a unit
/// except at the tile's end.
struct Part {
  PlacedTile tile;
  Range q, k;
  bool operator==(const Part&) const = default;
};

/// Parts that share no rows of queries and none of keys.
using Parts = std::vector<Part>;

/// One launch of each kernel.
struct Chunk {
  size_t parts = 0;  // index of Chunks::parts
  Range key_heads;
  Range heads;  // query heads, of these key heads
  // Whether the first, and the last, of the query heads of their key heads are among them.
  bool first_heads = true, last_heads = true;
  bool cut = false;  // of a tile whose chunks are more than one: there are FP32 rows for its sums
  int64_t sums_q_row = 0;  // row of queries that FP32 rows of dQ in the workspace begin with
  bool operator==(const Chunk&) const = default;
};

/// Chunks in the order in which they must run.
struct Chunks {
  std::vector<Parts> parts;
  std::vector<Chunk> chunks;
};

/// Keys that some query of [q.first, q.last) of the tile sees; empty: first == last.
Range seen_keys(const PlacedTile& tile, Range q);
/// Queries that see some key of [k.first, k.last).
Range seeing_queries(const PlacedTile& tile, Range k);

/// Units of 128 queries x 256 keys, of one head, that see something.
int64_t units_of(const Part& part);

/// Rows of the views that the sums of a part read; empty where nothing is seen.
struct ReadRows {
  Range q, k;
};
ReadRows read_rows(const Part& part);
/// The smallest ranges that hold both.
ReadRows joined(const ReadRows& a, const ReadRows& b);

/// The most that a chunk reads of a key head: rows of keys, and rows of queries of all its query
/// heads.
inline constexpr int64_t kMostRowHeads = 96 << 10;

/// How a tile is cut whose chunks are more than one, for a scratch of `units`.
struct Grid {
  int64_t columns = 1;  // most units of keys that a query sees in one chunk
  int64_t lines = 1;    // of 128 queries that all keys are cut for before the next ones
  int64_t heads = 1;    // most query heads of one key head, where no keys are cut
};
Grid grid_of(int64_t units, int64_t group);

/// Query heads of a key head, at most.
int64_t group_heads(const TileProblem& problem);

/// Chunks of at most `units` units each; at least 1. Tiles come one after the other where they
/// share rows. Whole results have a chunk even for tiles without visible pairs.
Chunks cut_into_chunks(const TileProblem& problem, std::span<const PlacedTile> tiles,
                       int64_t units);

}  // namespace longspan::hopper
