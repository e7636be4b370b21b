// With a bias, which heads one execution computes. Pure functions.
#pragma once

#include <cstdint>

#include "longspan/provider.h"

namespace longspan::cudnn {

/// The problem of one execution: some key heads with all of their query heads, such that what is as
/// large as its scores stays within kSliceBytes where one key head does; all of them without a
/// bias. Slices of a problem are alike, so that they share graphs.
TileProblem head_slice(const TileProblem& problem);
inline constexpr int64_t kSliceBytes = int64_t{1} << 30;

/// Most that one key head may need. cuDNN has left memory in the backward of a bias where elements
/// of scores were counted beyond 2^31; this is half of it.
inline constexpr int64_t kMostSliceBytes = int64_t{2} << 30;

/// Most bytes of the scores, or of the packed bias, of an execution.
int64_t slice_bytes(const TileProblem& slice);

/// Slice `index` of a call's views: its terms begin at the slice's first head.
ForwardTiles slice_of(const ForwardTiles& tiles, const TileProblem& slice, int64_t index);
BackwardTiles slice_of(const BackwardTiles& tiles, const TileProblem& slice, int64_t index);

}  // namespace longspan::cudnn
