// The schedules of all ranks as rounds that one program, running on every rank, can follow.
//
// XLA compiles one program for all ranks, and its collectives move arrays of one shape. A schedule
// is of one rank, and its messages hold the rows that the receiver sees. So what differs between
// ranks becomes data of a round: rows and tiles of each rank; what must be equal is padded to the
// largest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longspan/schedule.h"

namespace longspan::xla {

/// Rows [source, source + rows) of a rank's keys, which lie at `target` of what it sends.
struct RowRange {
  int64_t source = 0;
  int64_t target = 0;
  int64_t rows = 0;
};

/// Every rank r sends keys and values to rank r + distance (mod ranks).
struct Round {
  int distance = 0;
  int64_t rows = 0;                         // of the largest message
  std::vector<std::vector<RowRange>> sent;  // by sender, ordered by source and by target
};

struct Rounds {
  /// The keys of all ranks come in one exchange of whole shards instead, padded to `shard_rows`
  /// each; then `rounds` is empty and the tiles of round 0 have k_row in all shards end to end.
  bool gather = false;
  int64_t shard_rows = 0;  // of the largest rank, keys
  std::vector<Round> rounds;
  /// By rank, then by round: 0 are the tiles on the rank's own keys, 1 + i those on what rounds[i]
  /// brings.
  std::vector<std::vector<std::vector<PlacedTile>>> tiles;

  /// Key rows of the largest part.
  int64_t key_rows() const;
};

/// `schedules` are those of all ranks, of ring or all_gather. internal when they are of another
/// form.
Result<Rounds> rounds_of(std::span<const Schedule> schedules);

}  // namespace longspan::xla
