// Who holds which heads and tokens, and where the tiles of two ranks meet.
#pragma once

#include <cstdint>
#include <vector>

#include "longspan/partition.h"
#include "longspan/problem.h"
#include "longspan/provider.h"

namespace longspan {

/// The heads that member `index` of a group of `ways` ranks computes. Key heads are dealt whole;
/// where there are fewer than ranks, several ranks share one and split its query heads (unless the
/// problem is invariant). A member may hold no heads.
struct HeadShare {
  int64_t q_begin = 0;
  int64_t q_end = 0;
  int64_t kv_begin = 0;
  int64_t kv_end = 0;

  int64_t q_heads() const { return q_end - q_begin; }
  int64_t kv_heads() const { return kv_end - kv_begin; }
};

HeadShare head_share(const Problem& problem, int ways, int index);

/// True when some key head belongs to several members, whose dK and dV then have to be added. An
/// invariant problem never shares: where a sum is cut must not depend on the number of ranks.
inline bool shares_kv_heads(const Problem& problem, int ways) {
  return problem.heads_kv < ways && !problem.invariant;
}

enum class SideOf { kQuery, kKey };

/// Runs of valid tokens alone (valid == size).
struct Rows {
  std::vector<Run> runs;
  int64_t rows = 0;  // of the tensor that holds them
};

/// A rank's valid tokens, at the rows of its own tensors.
Rows valid_rows(const Shard& shard);
/// The same tokens without gaps.
Rows compacted(const Rows& rows);
/// The valid tokens of ranks [first, first + count) in sequence order without gaps; neighbouring
/// intervals become one, so that tiles are as large as on a single rank.
Rows merged_rows(const Partition& partition, SideOf side, int first, int count);

/// Where the tokens of a run (a part of one run of `rows`) lie.
struct Place {
  int64_t row = 0;
  int64_t step = 1;
};
Place locate(const Rows& rows, const Run& part);

/// Rows of two tensors that hold the same tokens: `rows` of them, one behind the other in both.
struct SharedRows {
  int64_t a_row = 0;
  int64_t b_row = 0;
  int64_t rows = 0;
};
/// Tokens that both hold, in the order of `a`. Runs have stride 1 and rise by sequence.
std::vector<SharedRows> shared_rows(const Rows& a, const Rows& b);
/// Tokens of `rows` that `others` lack, at the rows where they are. Runs as above.
Rows without(const Rows& rows, const Rows& others);

/// The tiles between queries and keys that see each other, and the keys that takes.
struct Meeting {
  std::vector<PlacedTile> tiles;  // q_row and k_row: rows of the tensors that hold them
  Rows needed;                    // the keys seen, without gaps; their rows start at 0
  std::vector<int64_t> source;    // row of each needed run in the keys' own tensor
};
Meeting meet(const Problem& problem, const Rows& q, const Rows& k);
/// Moves tiles from the keys' own rows to those of `meeting.needed`.
std::vector<PlacedTile> on_needed_rows(const Meeting& meeting);

}  // namespace longspan
