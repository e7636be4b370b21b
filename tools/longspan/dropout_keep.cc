#include "dropout_keep.h"

#include <cstdint>

namespace longspan::tool {
namespace {

/// The pairs of one sequence and head, which `at` names.
void append_block(const Problem& problem, ScoreIndex at, std::vector<std::byte>& keep) {
  const Dropout dropout = problem.dropout_values();
  const Sequence& sequence = problem.lengths.sequences[static_cast<size_t>(at.sequence)];
  for (at.q = 0; at.q < sequence.q_length; ++at.q) {
    for (at.k = 0; at.k < sequence.k_length; ++at.k) {
      keep.push_back(std::byte{dropout.keeps(at)});
    }
  }
}

}  // namespace

int64_t keep_bytes(const Problem& problem) {
  int64_t bytes = 0;
  for (const Sequence& sequence : problem.lengths.sequences) {
    // Lengths are at most 2^31 and heads 2^20.
    const __int128 more =
        static_cast<__int128>(sequence.q_length) * sequence.k_length * problem.heads_q;
    if (more > kMostKeepBytes - bytes) return kMostKeepBytes + 1;
    bytes += static_cast<int64_t>(more);
  }
  return bytes;
}

std::vector<std::byte> dropout_keep(const Problem& problem) {
  std::vector<std::byte> keep;
  keep.reserve(static_cast<size_t>(keep_bytes(problem)));
  for (size_t i = 0; i < problem.lengths.sequences.size(); ++i) {
    for (int64_t head = 0; head < problem.heads_q; ++head) {
      append_block(problem, {.sequence = static_cast<int64_t>(i), .head = head}, keep);
    }
  }
  return keep;
}

}  // namespace longspan::tool
