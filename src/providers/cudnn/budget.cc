#include "providers/cudnn/budget.h"

#include <algorithm>

namespace longspan::cudnn {
namespace {

constexpr int64_t kSlack = int64_t{1} << 20;  // descriptors, about 450 bytes a ragged entry

int64_t to_64(int64_t n) { return (n + 63) / 64 * 64; }

}  // namespace

CudnnBytes cudnn_bytes(const TileProblem& p, const Group& g) {
  CudnnBytes bytes{.engine = kSlack};
  if (p.direction == Direction::kForward) return bytes;
  const int64_t rows = g.total_q > 0 ? g.total_q : g.batch * g.sq;
  bytes.frontend += rows * p.heads_q * 4;  // rowsum(dout * o)
  if (writes_scores(p)) {
    bytes.engine += g.batch * p.heads_q * to_64(g.sq) * to_64(g.skv) * 2;
  } else {
    bytes.frontend += rows * p.heads_q * p.dim_qk * 4;  // dq in f32
  }
  if (key_heads(p) == p.heads_q) return bytes;
  // dk and dv of every query head, before they are added up.
  if (g.total_k > 0) {
    bytes.frontend += g.total_k * p.heads_q * (p.dim_qk + p.dim_v) * 4;
  } else {
    bytes.engine += g.batch * g.skv * p.heads_q * (p.dim_qk + p.dim_v) * 2;
  }
  return bytes;
}

int64_t cudnn_budget(const TileProblem& p) {
  // Ragged entries of one row and key declare no less than a block of 128.
  Group all{.sq = std::max<int64_t>(p.capacity_q, 128),
            .skv = std::max<int64_t>(p.capacity_k, 128)};
  const int64_t alone = cudnn_bytes(p, all).total();
  if (!bounds_totals(p)) return alone;
  all.total_q = rows_bucket(p.capacity_q);
  all.total_k = rows_bucket(p.capacity_k);
  return std::max(alone, cudnn_bytes(p, all).total());
}

bool writes_scores(const TileProblem& p) {
  return p.features.deterministic || p.features.bias != Bias::kNone;
}

int64_t score_bytes(const TileProblem& p) {
  return p.heads_q * to_64(p.capacity_q) * to_64(p.capacity_k) * 2;
}

}  // namespace longspan::cudnn
