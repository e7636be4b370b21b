// The score terms of a call as kernels take them.
#pragma once

#include "longspan/provider.h"
#include "providers/hopper/forward/parameters.h"

namespace longspan::hopper {

/// The value of the call's first query head, or null; `view` has one for each head of the problem.
float* of_first_head(const TensorView& view, const ScoreTerms& given);

/// `scale_log2`: of products of queries and keys, to scores in units of log2. Tokens and largest
/// logits are left out.
Terms terms_of(const ScoreTerms& given, float scale_log2);

}  // namespace longspan::hopper
