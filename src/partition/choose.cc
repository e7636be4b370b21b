// The partition behind "auto".
#include <fmt/format.h>

#include <algorithm>

#include "longspan/partition.h"

namespace longspan {
namespace {

/// How far back a query sees, the prefix aside.
int64_t keys_back(const Problem& problem) {
  int64_t reach = kUnbounded;
  if (problem.window_left >= 0) reach = problem.window_left;
  if (problem.chunk > 0) reach = std::min(reach, problem.chunk - 1);
  return reach;
}

}  // namespace

PartitionChoice choose_partition(const Problem& problem, int ranks) {
  // Cutting each of many short sequences into 2P pieces would make tiles of a few rows.
  constexpr int64_t kShortestPiece = 64;
  const auto count = static_cast<int64_t>(problem.lengths.sequences.size());
  const int64_t average = problem.lengths.tokens_q / count;
  if (ranks > 1 && count > 1 && average / (2 * int64_t{ranks}) < kShortestPiece) {
    return {PartitionKind::kBalanced,
            fmt::format("{} sequences of {} tokens on average: cut between them rather than each",
                        count, average)};
  }
  if (const int64_t reach = keys_back(problem); reach < average / std::max(ranks, 1)) {
    return {PartitionKind::kContiguous,
            fmt::format("queries look back {} tokens at most: equal pieces give nearly equal work "
                        "and move the borders alone",
                        reach)};
  }
  if (problem.mask == MaskKind::kCausal) {
    return {PartitionKind::kZigzag, "causal: early and late pieces together give equal work"};
  }
  return {PartitionKind::kContiguous, "no mask: equal pieces give equal work"};
}

Result<PartitionChoice> choose_partition(const Problem& problem, int ranks,
                                         std::string_view wanted) {
  if (wanted == "auto") return choose_partition(problem, ranks);
  LONGSPAN_TRY(const PartitionKind kind, parse_partition(wanted));
  return PartitionChoice{kind, "as asked"};
}

}  // namespace longspan
