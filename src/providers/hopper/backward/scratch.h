// Where a backward call's workspace goes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "longspan/provider.h"

namespace longspan::hopper {

/// Bytes of P and dS in a workspace, unless its problem needs less or names others, whatever the
/// lengths: four heads of 8192 causal tokens, or two of a full mask, are one chunk; twice as many
/// of dS alone.
inline constexpr int64_t kScoreBytes = int64_t{528} << 20;

/// Columns of gradients that a block of threads computes at a time.
struct GradientColumns {
  int64_t all = 0;     // of dQ and dK: 192 or 256, of the wider dim's one or two parts
  int64_t values = 0;  // of dV: as many, or 128
  bool operator==(const GradientColumns&) const = default;
};
GradientColumns gradient_columns(int64_t dim_qk, int64_t dim_v);

/// Whether dV is summed where scores are made, so that only dS is written.
bool sums_values(const TileProblem& problem);

/// Bytes from the start of the workspace.
struct BackwardScratch {
  size_t counter = 0;     // and turns behind it
  size_t statistics = 0;  // RowStatistics of all rows and heads
  size_t rows = 0;        // of a key head's operands, where TMA cannot read the caller's
  size_t sums_q = 0, sums_k = 0, sums_v = 0;  // f32, of whole results that several chunks make
  size_t p = 0, ds = 0;
  size_t end = 0;
  int64_t units = 0;  // of scores that p and ds hold
  int64_t turns = 0;  // of ValueParameters
};

/// Turns of parts of sums of dV: one for each 64 keys of a tile.
int64_t backward_turns(const TileProblem& problem);

/// P and dS take the problem's score_bytes together, at most; those of a unit at least.
BackwardScratch backward_scratch(const TileProblem& problem);

}  // namespace longspan::hopper
