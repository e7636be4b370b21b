#include <algorithm>
#include <cmath>
#include <limits>

#include "providers/cpu/reference.h"
#include "providers/cpu/reference_memory.h"
#include "providers/cpu/terms.h"
#include "providers/rules.h"

namespace longspan::cpu {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

struct Job {
  const ForwardTiles& call;
  const PlacedTile& tile;
  double* memory;
};

/// A thread's buffer.
struct Scratch {
  double* p;       // scores, then probabilities, of a row's keys
  double* o;       // [dim_v]
  double* before;  // [dim_v]: the carried row
  double* max;     // per query head: the largest score that the thread met
};

class ReferenceForward final : public Plan {
 public:
  ReferenceForward(const TileProblem& problem, std::shared_ptr<Workers> workers)
      : problem_(problem), workers_(std::move(workers)) {
    q_ = memory_.rows(problem.capacity_q, problem.heads_q, problem.dim_qk);
    k_ = memory_.rows(problem.capacity_k, problem.heads_kv, problem.dim_qk);
    v_ = memory_.rows(problem.capacity_k, problem.heads_kv, problem.dim_v);
    memory_.buffers(problem.capacity_k + 2 * problem.dim_v + problem.heads_q);
  }

  size_t workspace_bytes() const override { return memory_.bytes(workers_->threads()); }

  Status forward(const ForwardTiles& call, Workspace workspace) const override {
    LONGSPAN_CHECK_OK(fits(problem_, call, Carries::kAnyFloat));
    LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
    double* const memory = static_cast<double*>(workspace.data);
    for (int slot = 0; slot < workers_->threads(); ++slot) {
      std::fill_n(scratch(memory, slot).max, problem_.heads_q, kNone);
    }
    for (const PlacedTile& given : call.tiles) {
      const PlacedTile tile = live(given, call.lengths);
      if (empty(tile.tile)) continue;
      const Job job{call, tile, memory};
      const int64_t queries = tile.tile.q.size();
      const int64_t keys = tile.tile.k.size();
      q_.read(*workers_, call.q, tile.q_row, queries, memory);
      k_.read(*workers_, call.k, tile.k_row, keys, memory);
      v_.read(*workers_, call.v, tile.k_row, keys, memory);
      workers_->for_each(queries * problem_.heads_q, [&](int64_t index, int slot) {
        row(job, index % queries, index / queries, scratch(memory, slot));
      });
    }
    if (problem_.features.max_logit) raise(call, memory);
    return {};
  }

  Status backward(const BackwardTiles& call, Workspace) const override {
    return fits(problem_, call, Carries::kAnyFloat);
  }

 private:
  Scratch scratch(double* memory, int slot) const {
    double* const p = memory_.buffer(memory, slot);
    double* const o = p + problem_.capacity_k;
    return {p, o, o + problem_.dim_v, o + 2 * problem_.dim_v};
  }

  void row(const Job& job, int64_t i, int64_t head, const Scratch& s) const {
    const Range seen = visible_keys(job.tile.tile.band, i, job.tile.tile.k.size());
    const int64_t kv = key_head(problem_, head);
    const double* const q = q_.at(job.memory, i, head);
    const double* const k = k_.at(job.memory, 0, kv);
    const double* const v = v_.at(job.memory, 0, kv);
    const PairTerms terms(job.call.terms, job.tile, head);
    bool any = false;  // not max > -inf: a NaN must stay visible
    double max = kNone;
    for (int64_t j = seen.first; j < seen.last; ++j) {
      const double product =
          job.call.scale * loops_.dot(q, k + j * problem_.dim_qk, problem_.dim_qk);
      s.p[j] = terms.score(product, i, j);
      any |= s.p[j] != PairTerms::kHidden;
      max = std::max(max, s.p[j]);
    }
    if (!any) return;
    s.max[head] = std::max(s.max[head], max);
    double sum = 0;
    std::fill_n(s.o, problem_.dim_v, 0.0);
    for (int64_t j = seen.first; j < seen.last; ++j) {
      if (s.p[j] == PairTerms::kHidden) continue;
      const double p = std::exp(s.p[j] - max);
      sum += p;
      const double kept = p * terms.keep(i, j);
      // Keys without weight may hold anything.
      if (kept != 0) loops_.add(s.o, v + j * problem_.dim_v, kept, problem_.dim_v);
    }
    carry(job, i, head, s, max + std::log(sum), sum);
  }

  /// Merges o / sum, the result over keys of log-sum-exp `lse`, into the carried row.
  void carry(const Job& job, int64_t i, int64_t head, const Scratch& s, double lse,
             double sum) const {
    const int64_t row = job.tile.q_row + i;
    double carried = 0;
    read_row(job.call.lse, row, head, &carried);
    double keep = 0;
    double weight = 1;
    if (carried != kNone) {
      const double top = std::max(carried, lse);
      const double total = std::exp(carried - top) + std::exp(lse - top);
      keep = std::exp(carried - top) / total;
      weight = std::exp(lse - top) / total;
      lse = top + std::log(total);
      read_row(job.call.o, row, head, s.before);
    }
    for (int64_t d = 0; d < problem_.dim_v; ++d) {
      s.o[d] = s.o[d] / sum * weight + (keep != 0 ? keep * s.before[d] : 0);
    }
    write_row(job.call.o, row, head, s.o);
    write_row(job.call.lse, row, head, &lse);
  }

  /// Raises max_logit to what the threads met. The largest of numbers has no order.
  void raise(const ForwardTiles& call, double* memory) const {
    for (int64_t head = 0; head < problem_.heads_q; ++head) {
      double largest = kNone;
      for (int slot = 0; slot < workers_->threads(); ++slot) {
        largest = std::max(largest, scratch(memory, slot).max[head]);
      }
      double given = 0;
      read_row(call.max_logit, 0, call.terms.head_begin + head, &given);
      if (largest > given) write_row(call.max_logit, 0, call.terms.head_begin + head, &largest);
    }
  }

  TileProblem problem_;
  std::shared_ptr<Workers> workers_;
  const RowLoops& loops_ = row_loops();
  ReferenceMemory memory_;
  Rows q_, k_, v_;
};

}  // namespace

std::shared_ptr<const Plan> make_reference_forward(const TileProblem& problem,
                                                   std::shared_ptr<Workers> workers) {
  return std::make_shared<ReferenceForward>(problem, std::move(workers));
}

}  // namespace longspan::cpu
