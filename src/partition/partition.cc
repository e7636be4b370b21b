#include "longspan/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace longspan {
namespace {

constexpr std::array kKinds = {PartitionKind::kContiguous, PartitionKind::kZigzag,
                               PartitionKind::kStriped, PartitionKind::kBalanced};

/// One side of a problem: what to cut and how long its valid part is.
struct Side {
  int64_t Sequence::*length;
  int64_t Sequence::*extent;
  int64_t Sequence::*offset;
  int64_t Lengths::*tokens;
};

constexpr Side kQuery{&Sequence::q_length, &Sequence::q_extent, &Sequence::q_offset,
                      &Lengths::tokens_q};
constexpr Side kKey{&Sequence::k_length, &Sequence::k_extent, &Sequence::k_offset,
                    &Lengths::tokens_k};

int64_t used_rows(const Lengths& lengths, Side side) {
  const Sequence& last = lengths.sequences.back();
  return last.*side.offset + last.*side.extent;
}

void append(Shard& shard, int32_t sequence, Interval tokens, int64_t length) {
  const int64_t size = tokens.size();
  if (size == 0) return;
  const Interval canonical = tokens.slice(0, size);
  const int64_t valid = clip(canonical, length).size();
  shard.runs.push_back({shard.rows, sequence, canonical, valid});
  shard.rows += size;
}

/// Piece `index` of `pieces` of [0, extent).
Interval piece(int64_t extent, int64_t index, int64_t pieces) {
  return {extent * index / pieces, extent * (index + 1) / pieces};
}

/// What rank `rank` owns of one sequence, for the kinds that cut every sequence alike.
void append_pieces(Shard& shard, PartitionKind kind, int32_t sequence, int64_t extent,
                   int64_t length, int rank, int ranks) {
  switch (kind) {
    case PartitionKind::kContiguous:
      append(shard, sequence, piece(extent, rank, ranks), length);
      return;
    case PartitionKind::kZigzag: {
      const int64_t pieces = 2 * int64_t{ranks};
      const Interval early = piece(extent, rank, pieces);
      const Interval late = piece(extent, pieces - 1 - rank, pieces);
      if (early.end == late.begin) {
        append(shard, sequence, {early.begin, late.end}, length);
        return;
      }
      append(shard, sequence, early, length);
      append(shard, sequence, late, length);
      return;
    }
    case PartitionKind::kStriped: append(shard, sequence, {rank, extent, ranks}, length); return;
    case PartitionKind::kBalanced: return;
  }
}

Shard cut_pieces(const Lengths& lengths, Side side, PartitionKind kind, int rank, int ranks) {
  Shard shard;
  int32_t index = 0;
  for (const Sequence& sequence : lengths.sequences) {
    append_pieces(shard, kind, index++, sequence.*side.extent, sequence.*side.length, rank, ranks);
  }
  const int64_t unused = lengths.*side.tokens - used_rows(lengths, side);
  append_pieces(shard, kind, index, unused, 0, rank, ranks);
  return shard;
}

/// A place in the concatenation of all sequences.
struct Cut {
  size_t sequence = 0;
  int64_t token = 0;
};

/// Smallest query count whose rows hold at least `target` pairs. Area grows with the count.
int64_t queries_for(const Problem& problem, size_t sequence, int64_t target) {
  int64_t low = 0;
  int64_t high = problem.lengths.sequences[sequence].q_length;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (problem.visible_pairs(static_cast<int64_t>(sequence), middle) >= target) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

int64_t pairs_of(const Problem& problem, size_t sequence) {
  return problem.visible_pairs(static_cast<int64_t>(sequence),
                               problem.lengths.sequences[sequence].q_length);
}

/// Where ranks 1 .. ranks-1 begin: after the first query at which their share of the visible pairs
/// is reached.
std::vector<Cut> balanced_cuts(const Problem& problem, int ranks) {
  const std::vector<Sequence>& sequences = problem.lengths.sequences;
  const int64_t total = problem.visible_pairs();
  std::vector<Cut> cuts;
  size_t at = 0;
  int64_t before = 0;  // pairs of the sequences before `at`
  int64_t here = sequences.empty() ? 0 : pairs_of(problem, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto target = static_cast<int64_t>(static_cast<__int128>(total) * rank / ranks);
    while (at < sequences.size() && before + here <= target) {
      before += here;
      ++at;
      if (at == sequences.size()) break;
      here = pairs_of(problem, at);
    }
    if (at == sequences.size()) {
      cuts.push_back({at, 0});
      continue;
    }
    cuts.push_back({at, queries_for(problem, at, target - before)});
  }
  return cuts;
}

/// The cut on one side: queries where they are, keys in proportion (the same place when the lengths
/// agree). A cut behind the last valid token moves behind the padding.
int64_t cut_position(const Sequence& sequence, Side side, int64_t query) {
  const int64_t length = sequence.*side.length;
  const int64_t queries = sequence.q_length;
  const int64_t position =
      queries == 0 ? 0 : static_cast<int64_t>(static_cast<__int128>(query) * length / queries);
  return position >= length && query > 0 ? sequence.*side.extent : position;
}

Shard cut_balanced(const Problem& problem, Side side, const std::vector<Cut>& cuts, int rank) {
  const std::vector<Sequence>& sequences = problem.lengths.sequences;
  const bool last_rank = static_cast<size_t>(rank) == cuts.size();
  const Cut from = rank == 0 ? Cut{} : cuts[static_cast<size_t>(rank) - 1];
  const Cut to = last_rank ? Cut{sequences.size(), 0} : cuts[static_cast<size_t>(rank)];
  Shard shard;
  for (size_t i = from.sequence; i < sequences.size() && i <= to.sequence; ++i) {
    const Sequence& sequence = sequences[i];
    const int64_t begin = i == from.sequence ? cut_position(sequence, side, from.token) : 0;
    const int64_t end =
        i == to.sequence ? cut_position(sequence, side, to.token) : sequence.*side.extent;
    append(shard, static_cast<int32_t>(i), {begin, std::max(begin, end)}, sequence.*side.length);
  }
  if (last_rank) {
    const Lengths& lengths = problem.lengths;
    const int64_t unused = lengths.*side.tokens - used_rows(lengths, side);
    append(shard, static_cast<int32_t>(sequences.size()), {0, unused}, 0);
  }
  return shard;
}

/// Batched shards need one run group of equal size for every sequence.
int64_t batch_of(const Problem& problem, const Shard& shard) {
  const auto count = static_cast<int64_t>(problem.lengths.sequences.size());
  if (problem.layout == Layout::kTHD || shard.rows % count != 0) return 1;
  std::vector<int64_t> rows(static_cast<size_t>(count), 0);
  for (const Run& run : shard.runs) rows[static_cast<size_t>(run.sequence)] += run.tokens.size();
  const auto differs = [&](int64_t r) { return r != rows.front(); };
  return std::any_of(rows.begin(), rows.end(), differs) ? 1 : count;
}

std::vector<int64_t> indices(const Problem& problem, Side side, const Shard& shard) {
  const std::vector<Sequence>& sequences = problem.lengths.sequences;
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(shard.rows));
  for (const Run& run : shard.runs) {
    const auto sequence = static_cast<size_t>(run.sequence);
    const int64_t offset = sequence < sequences.size() ? sequences[sequence].*side.offset
                                                       : used_rows(problem.lengths, side);
    for (int64_t i = 0; i < run.tokens.size(); ++i) rows.push_back(offset + run.tokens.at(i));
  }
  return rows;
}

std::vector<int64_t> positions(const Shard& shard) {
  std::vector<int64_t> result;
  result.reserve(static_cast<size_t>(shard.rows));
  for (const Run& run : shard.runs) {
    for (int64_t i = 0; i < run.tokens.size(); ++i) result.push_back(run.tokens.at(i));
  }
  return result;
}

std::vector<int64_t> inverse(const Problem& problem, Side side, const std::vector<Shard>& shards) {
  std::vector<int64_t> result(static_cast<size_t>(problem.lengths.*side.tokens), -1);
  int64_t place = 0;
  for (const Shard& shard : shards) {
    for (const int64_t row : indices(problem, side, shard)) {
      result[static_cast<size_t>(row)] = place++;
    }
  }
  return result;
}

}  // namespace

std::string_view name(PartitionKind kind) {
  switch (kind) {
    case PartitionKind::kContiguous: return "contiguous";
    case PartitionKind::kZigzag: return "zigzag";
    case PartitionKind::kStriped: return "striped";
    case PartitionKind::kBalanced: return "balanced";
  }
  return "";
}

Result<PartitionKind> parse_partition(std::string_view text) {
  for (const PartitionKind kind : kKinds) {
    if (text == name(kind)) return kind;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("unknown partition \"{}\"; one of auto, contiguous, zigzag, striped, "
                           "balanced",
                           text),
               "partition"};
}

Result<Partition> Partition::make(const Problem& problem, PartitionKind kind, int ranks) {
  if (ranks < 1) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("ranks {}: must be at least 1", ranks),
                 "partition"};
  }
  Partition partition;
  partition.kind_ = kind;
  const std::vector<Cut> cuts =
      kind == PartitionKind::kBalanced ? balanced_cuts(problem, ranks) : std::vector<Cut>{};
  for (int rank = 0; rank < ranks; ++rank) {
    const auto shard = [&](Side side) {
      Shard result = kind == PartitionKind::kBalanced
                         ? cut_balanced(problem, side, cuts, rank)
                         : cut_pieces(problem.lengths, side, kind, rank, ranks);
      result.batch = batch_of(problem, result);
      return result;
    };
    partition.q_.push_back(shard(kQuery));
    partition.k_.push_back(shard(kKey));
  }
  return partition;
}

std::vector<int64_t> Partition::q_indices(const Problem& problem, int rank) const {
  return indices(problem, kQuery, q(rank));
}
std::vector<int64_t> Partition::k_indices(const Problem& problem, int rank) const {
  return indices(problem, kKey, k(rank));
}
std::vector<int64_t> Partition::q_positions(int rank) const { return positions(q(rank)); }
std::vector<int64_t> Partition::k_positions(int rank) const { return positions(k(rank)); }
std::vector<int64_t> Partition::q_inverse(const Problem& problem) const {
  return inverse(problem, kQuery, q_);
}
std::vector<int64_t> Partition::k_inverse(const Problem& problem) const {
  return inverse(problem, kKey, k_);
}

}  // namespace longspan
