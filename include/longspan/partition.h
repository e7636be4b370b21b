// Which rank owns which rows. Nothing has to divide; a rank may own nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/mask.h"
#include "longspan/problem.h"

namespace longspan {

enum class PartitionKind {
  kContiguous,  // each sequence in P consecutive pieces
  kZigzag,      // each sequence in 2P pieces, rank r owns pieces r and 2P-1-r: equal causal work
  kStriped,     // token t of a sequence belongs to rank t mod P
  kBalanced,    // consecutive rows over all sequences, cut where the visible area is equal
};

std::string_view name(PartitionKind kind);
/// "contiguous", "zigzag", "striped", "balanced". Unknown names are invalid_argument.
Result<PartitionKind> parse_partition(std::string_view text);
struct PartitionChoice {
  PartitionKind kind;
  std::string reason;
};
/// The choice behind `auto`.
PartitionChoice choose_partition(const Problem& problem, int ranks);
/// `wanted`: "auto" or a name, as parse_partition.
Result<PartitionChoice> choose_partition(const Problem& problem, int ranks,
                                         std::string_view wanted);

/// Consecutive rows of a rank's local tensor and the tokens of one sequence that they hold. Only
/// the first `valid` of them are tokens; the rest is padding. Unused rows at the end of the tensor
/// belong to sequence number lengths.sequences.size(), with valid 0.
struct Run {
  int64_t row = 0;
  int32_t sequence = 0;
  Interval tokens;  // physical positions inside the sequence, padding included
  int64_t valid = 0;
  bool operator==(const Run&) const = default;
};

/// The rows of one side (q or k) of one rank, in local row order, sequence by sequence.
struct Shard {
  std::vector<Run> runs;  // without empty ones; ordered by sequence
  int64_t rows = 0;
  int64_t batch = 1;  // local tensor is [batch, seq] rows; batch 1 unless all extents agree
};

class Partition {
 public:
  /// `ranks` >= 1.
  static Result<Partition> make(const Problem& problem, PartitionKind kind, int ranks);

  PartitionKind kind() const { return kind_; }
  int ranks() const { return static_cast<int>(q_.size()); }
  const Shard& q(int rank) const { return q_[static_cast<size_t>(rank)]; }
  const Shard& k(int rank) const { return k_[static_cast<size_t>(rank)]; }

  /// Global row of each local row of q (k): the order in which a rank's tensor holds the global
  /// one.
  std::vector<int64_t> q_indices(const Problem& problem, int rank) const;
  std::vector<int64_t> k_indices(const Problem& problem, int rank) const;
  /// Position inside its sequence of each local row of q (k); 0-based, padding counts on.
  std::vector<int64_t> q_positions(int rank) const;
  std::vector<int64_t> k_positions(int rank) const;
  /// For each global row of q (k): its place in the concatenation of all ranks' local rows.
  std::vector<int64_t> q_inverse(const Problem& problem) const;
  std::vector<int64_t> k_inverse(const Problem& problem) const;

 private:
  PartitionKind kind_ = PartitionKind::kContiguous;
  std::vector<Shard> q_;
  std::vector<Shard> k_;
};

}  // namespace longspan
