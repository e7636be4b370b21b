#include <algorithm>
#include <cmath>
#include <utility>

#include "providers/cpu/reference.h"
#include "providers/cpu/reference_memory.h"
#include "providers/cpu/terms.h"
#include "providers/rules.h"

namespace longspan::cpu {
namespace {

struct Job {
  const BackwardTiles& call;
  const PlacedTile& tile;
  double* memory;
};

/// What a pair contributes. All is 0 where the pair is hidden or without weight.
struct Pair {
  double weight = 0;   // probability after dropout
  double bias = 0;     // gradient of the bias
  double product = 0;  // gradient of scale q.k
};

class ReferenceBackward final : public Plan {
 public:
  ReferenceBackward(const TileProblem& problem, std::shared_ptr<Workers> workers)
      : problem_(problem), workers_(std::move(workers)) {
    const auto queries = [&](int64_t dim) {
      return memory_.rows(problem.capacity_q, problem.heads_q, dim);
    };
    const auto keys = [&](int64_t dim) {
      return memory_.rows(problem.capacity_k, problem.heads_kv, dim);
    };
    q_ = queries(problem.dim_qk);
    k_ = keys(problem.dim_qk);
    v_ = keys(problem.dim_v);
    dout_ = queries(problem.dim_v);
    lse_ = queries(1);
    delta_ = queries(1);
    memory_.buffers(problem.dim_qk + problem.dim_v);
  }

  size_t workspace_bytes() const override { return memory_.bytes(workers_->threads()); }

  Status forward(const ForwardTiles& call, Workspace) const override {
    return fits(problem_, call, Carries::kAnyFloat);
  }

  Status backward(const BackwardTiles& call, Workspace workspace) const override {
    LONGSPAN_CHECK_OK(fits(problem_, call, Carries::kAnyFloat));
    LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
    double* const memory = static_cast<double*>(workspace.data);
    for (const PlacedTile& given : call.tiles) {
      const PlacedTile tile = live(given, call.lengths);
      if (empty(tile.tile)) continue;
      const Job job{call, tile, memory};
      read(job);
      const int64_t queries = tile.tile.q.size();
      workers_->for_each(queries * problem_.heads_q, [&](int64_t index, int slot) {
        query_row(job, index % queries, index / queries, memory_.buffer(memory, slot));
      });
      const int64_t keys = tile.tile.k.size();
      workers_->for_each(keys * problem_.heads_kv, [&](int64_t index, int slot) {
        key_row(job, index % keys, index / keys, memory_.buffer(memory, slot));
      });
      if (call.dbias.data == nullptr) continue;
      // Queries, heads and sequences may share an element, keys never do.
      workers_->for_each(keys, [&](int64_t index, int) { bias_column(job, index); });
    }
    return {};
  }

 private:
  void read(const Job& job) const {
    const auto queries = [&](const Rows& rows, const TensorView& view) {
      rows.read(*workers_, view, job.tile.q_row, job.tile.tile.q.size(), job.memory);
    };
    const auto keys = [&](const Rows& rows, const TensorView& view) {
      rows.read(*workers_, view, job.tile.k_row, job.tile.tile.k.size(), job.memory);
    };
    queries(q_, job.call.q);
    keys(k_, job.call.k);
    keys(v_, job.call.v);
    queries(dout_, job.call.dout);
    queries(lse_, job.call.lse);
    queries(delta_, job.call.delta);
  }

  /// Rows without weight may hold anything.
  void add(double* sum, double weight, const double* row, int64_t dim) const {
    if (weight != 0) loops_.add(sum, row, weight, dim);
  }

  /// `terms` are those of `head`.
  Pair pair(const Job& job, const PairTerms& terms, int64_t head, int64_t i, int64_t j) const {
    const int64_t kv = key_head(problem_, head);
    const double lse = *lse_.at(job.memory, i, head);
    if (lse == PairTerms::kHidden) return {};
    const double product = job.call.scale * loops_.dot(q_.at(job.memory, i, head),
                                                       k_.at(job.memory, j, kv), problem_.dim_qk);
    const PairTerms::Differentiated s = terms.differentiated(product, i, j);
    const double p = std::exp(s.score - lse);
    if (p == 0) return {};
    const double keep = terms.keep(i, j);
    const double dp = keep == 0 ? 0
                                : keep * loops_.dot(dout_.at(job.memory, i, head),
                                                    v_.at(job.memory, j, kv), problem_.dim_v);
    const double ds = p * (dp - *delta_.at(job.memory, i, head));
    return {p * keep, ds * s.by_bias, ds * s.by_product};
  }

  void query_row(const Job& job, int64_t i, int64_t head, double* dq) const {
    const Range seen = visible_keys(job.tile.tile.band, i, job.tile.tile.k.size());
    if (seen.first >= seen.last) return;
    const int64_t kv = key_head(problem_, head);
    const PairTerms terms(job.call.terms, job.tile, head);
    std::fill_n(dq, problem_.dim_qk, 0.0);
    for (int64_t j = seen.first; j < seen.last; ++j) {
      add(dq, pair(job, terms, head, i, j).product, k_.at(job.memory, j, kv), problem_.dim_qk);
    }
    add_row(job.call.dq, job.tile.q_row + i, head, dq, job.call.scale);
  }

  void key_row(const Job& job, int64_t j, int64_t kv, double* dk) const {
    const Range heads = query_heads(problem_, kv);
    const Range seen = visible_keys(transposed(job.tile.tile.band), j, job.tile.tile.q.size());
    if (heads.first >= heads.last || seen.first >= seen.last) return;
    double* const dv = dk + problem_.dim_qk;
    std::fill_n(dk, problem_.dim_qk, 0.0);
    std::fill_n(dv, problem_.dim_v, 0.0);
    for (int64_t head = heads.first; head < heads.last; ++head) {
      const PairTerms terms(job.call.terms, job.tile, head);
      for (int64_t i = seen.first; i < seen.last; ++i) {
        const Pair both = pair(job, terms, head, i, j);
        add(dk, both.product, q_.at(job.memory, i, head), problem_.dim_qk);
        add(dv, both.weight, dout_.at(job.memory, i, head), problem_.dim_v);
      }
    }
    add_row(job.call.dk, job.tile.k_row + j, kv, dk, job.call.scale);
    add_row(job.call.dv, job.tile.k_row + j, kv, dv, 1);
  }

  /// Consecutive pairs that share an element are summed before they are added and rounded.
  void bias_column(const Job& job, int64_t j) const {
    const Range seen = visible_keys(transposed(job.tile.tile.band), j, job.tile.tile.q.size());
    const TensorView& dbias = job.call.dbias;
    int64_t at = -1;
    double sum = 0;
    for (int64_t i = seen.first; i < seen.last; ++i) {
      for (int64_t head = 0; head < problem_.heads_q; ++head) {
        const PairTerms terms(job.call.terms, job.tile, head);
        const int64_t here = bias_offset(dbias, terms.index(i, j));
        if (here != at && at >= 0) add_element(dbias, at, std::exchange(sum, 0));
        at = here;
        sum += pair(job, terms, head, i, j).bias;
      }
    }
    if (at >= 0) add_element(dbias, at, sum);
  }

  TileProblem problem_;
  std::shared_ptr<Workers> workers_;
  const RowLoops& loops_ = row_loops();
  ReferenceMemory memory_;
  Rows q_, k_, v_, dout_, lse_, delta_;
};

}  // namespace

std::shared_ptr<const Plan> make_reference_backward(const TileProblem& problem,
                                                    std::shared_ptr<Workers> workers) {
  return std::make_shared<ReferenceBackward>(problem, std::move(workers));
}

}  // namespace longspan::cpu
