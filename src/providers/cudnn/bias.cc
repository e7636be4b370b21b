#include "providers/cudnn/bias.h"

#include <algorithm>

namespace longspan::cudnn {
namespace {

constexpr int64_t kElement = 2;  // bytes

/// Ragged entries of one row and key declare more.
int64_t most_declared(int64_t capacity) { return std::max(capacity, length_bucket(1)); }

int64_t bias_heads(const TileProblem& p) {
  const Bias kind = p.features.bias;
  return kind == Bias::k1H || kind == Bias::kBH ? p.heads_q : 1;
}

/// cuDNN 9.19's backward is wrong with one row for all queries.
bool has_one_row(const TileProblem& p) {
  return p.features.bias == Bias::k111S && p.direction == Direction::kForward;
}

int64_t row_bytes(const TileProblem& p) {
  return bias_width(most_declared(p.capacity_k)) * kElement;
}

}  // namespace

BiasShape bias_shape(const TileProblem& p, const Group& group) {
  if (p.features.bias == Bias::kNone) return {};
  return {bias_heads(p), has_one_row(p) ? 1 : group.sq};
}

int64_t bias_bytes(const TileProblem& p) {
  if (p.features.bias == Bias::kNone) return 0;
  const int64_t rows = has_one_row(p) ? 1 : most_declared(p.capacity_q);
  return bias_heads(p) * rows * row_bytes(p);
}

int64_t dbias_bytes(const TileProblem& p) {
  if (p.features.bias == Bias::kNone || p.direction == Direction::kForward) return 0;
  return p.heads_q * most_declared(p.capacity_q) * row_bytes(p);
}

}  // namespace longspan::cudnn
