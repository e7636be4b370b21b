#include "providers/hopper/backward/scratch.h"

#include <algorithm>

#include "providers/hopper/backward/chunks.h"
#include "providers/hopper/backward/layout.h"
#include "providers/hopper/backward/row_statistics.h"
#include "providers/hopper/heuristics.h"

namespace longspan::hopper {
namespace {

/// Parts of the workspace one after the other, aligned to blocks of scratch.
class Layout {
 public:
  size_t take(int64_t bytes) {
    const size_t place = end_;
    constexpr size_t kAlignment = 1024;
    end_ = (end_ + static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
    return place;
  }
  size_t end() const { return end_; }

 private:
  size_t end_ = 0;
};

int64_t units_up(int64_t rows, int64_t unit) {
  return std::max<int64_t>((rows + unit - 1) / unit, 1);
}

}  // namespace

GradientColumns gradient_columns(int64_t dim_qk, int64_t dim_v) {
  const int64_t wider = std::max(dim_qk, dim_v);
  if (wider <= 192) return {.all = 192, .values = dim_v <= 128 ? 128 : 192};
  return wider > 256 && wider <= 384 ? GradientColumns{192, 192} : GradientColumns{256, 256};
}

bool sums_values(const TileProblem& p) {
  // Keys and their dV stay on a multiprocessor; fewer columns are declined.
  return !has_terms(p.features) && p.dim_qk > 128 && p.dim_qk <= 192 && p.dim_v <= 128;
}

int64_t backward_turns(const TileProblem& p) {
  return sums_values(p) ? 2 * units_up(p.capacity_k, kGradientRows) + 2 : 0;
}

BackwardScratch backward_scratch(const TileProblem& p) {
  const int64_t score_bytes = p.score_bytes > 0 ? p.score_bytes : kScoreBytes;
  // NOTE: as doubles, since the product of capacities may exceed 64 bits.
  const double of_head = static_cast<double>(units_up(p.capacity_q, kUnitQueries)) *
                         static_cast<double>(units_up(p.capacity_k, kUnitKeys));
  const bool writes_p = !sums_values(p);
  const int64_t most = std::max<int64_t>(score_bytes / ((writes_p ? 2 : 1) * kUnitBytes), 1);
  BackwardScratch s;
  const double all = of_head * static_cast<double>(p.heads_q);
  s.units = all < static_cast<double>(most) ? static_cast<int64_t>(all) : most;
  const int64_t group = group_heads(p);
  const int64_t read =
      std::max<int64_t>(p.capacity_q, 1) * group + std::max<int64_t>(p.capacity_k, 1);
  const bool fits =
      of_head * static_cast<double>(group) <= static_cast<double>(s.units) && read <= kMostRowHeads;
  const bool several = p.features.whole && !fits;
  Layout layout;
  s.turns = backward_turns(p);
  s.counter = layout.take((1 + s.turns) * static_cast<int64_t>(sizeof(uint32_t)));
  s.statistics = layout.take((p.capacity_q + kStatisticsPadding) * p.heads_q *
                             static_cast<int64_t>(sizeof(RowStatistics)));
  s.rows = layout.take(std::min(read, kMostRowHeads) * (p.dim_qk + p.dim_v) * 2);
  s.sums_q = layout.take(several ? grid_of(s.units, group).lines * kUnitQueries * p.dim_qk * 4 : 0);
  s.sums_k = layout.take(several ? p.capacity_k * p.dim_qk * 4 : 0);
  s.sums_v = layout.take(several ? p.capacity_k * p.dim_v * 4 : 0);
  s.p = layout.take(writes_p ? s.units * kUnitBytes : 0);
  s.ds = layout.take(s.units * kUnitBytes);
  s.end = layout.end();
  return s;
}

}  // namespace longspan::hopper
