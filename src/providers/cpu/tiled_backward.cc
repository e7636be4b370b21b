#include <cmath>
#include <limits>
#include <type_traits>

#include "base/workers.h"
#include "providers/cpu/backward_job.h"
#include "providers/cpu/blocks.h"
#include "providers/cpu/simd.h"
#include "providers/cpu/tiled.h"
#include "providers/cpu/tiled_backward_products.h"
#include "providers/cpu/tiled_terms.h"
#include "providers/cpu/waves.h"
#include "providers/rules.h"

namespace longspan::cpu {
namespace {

/// dk and dv leave scratch after this many query blocks, which keeps chains of additions short.
constexpr int kFlush = 8;

/// S is the type of dP and delta. For f32 problems it is float64: P (dP - delta) cancels where a
/// row sees few keys or the softmax is sharp, and rounding dP would be most of what is left. Scores
/// stay in T, so that they are forward's own bit for bit and agree with its LSE.
template <class T, class S>
class TiledBackward final : public Plan {
 public:
  TiledBackward(const TileProblem& problem, std::shared_ptr<Workers> workers)
      : problem_(problem),
        workers_(std::move(workers)),
        block_(block_rows<T>(problem)),
        ld_qk_(padded(problem.dim_qk)),
        ld_v_(padded(problem.dim_v)),
        order_(problem, block_),
        terms_(problem, block_),
        products_(problem, block_) {
    Pieces<T> count(nullptr);
    scratch(count);
    slot_ = count.taken();
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(slot_ * workers_->threads()) * sizeof(T);
  }

  Status forward(const ForwardTiles& call, Workspace) const override {
    return fits(problem_, call, Carries::kAccumulator);
  }

  Status backward(const BackwardTiles& call, Workspace workspace) const override {
    LONGSPAN_CHECK_OK(fits(problem_, call, Carries::kAccumulator));
    LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
    T* const memory = static_cast<T*>(workspace.data);
    for (size_t begin = 0; begin < call.tiles.size();) {
      const Wave wave(call.tiles, begin, order_.writes(), [&](const PlacedTile& t) {
        return order_.items(live(t, call.lengths).tile);
      });
      Tickets tickets(order_.positions(call.q.rows()));
      wave.run(*workers_, [&](size_t index, int64_t item, int64_t number, int slot) {
        Pieces<T> pieces(memory + slot * slot_);
        const PlacedTile tile = live(call.tiles[index], call.lengths);
        run(order_.job(call, tile, item, number, tickets), scratch(pieces));
      });
      begin = wave.end();
    }
    return {};
  }

 private:
  BackwardScratch<T, S> scratch(Pieces<T>& pieces) const {
    return {pieces, problem_, terms_, block_};
  }

  void run(const BackwardJob& job, const BackwardScratch<T, S>& s) const {
    job.tickets.start(job.item);
    const Range rows =
        seen_keys(transposed(job.tile.tile.band), job.k0, job.k0 + job.nk, job.tile.tile.q.size());
    if (rows.first < rows.last) {
      terms_.start_keys(s.terms);
      for (int64_t head = job.heads.first; head < job.heads.last; ++head) {
        attend_head(job, s, rows, head);
      }
      terms_.finish_keys(pairs(job, {}), job.call.dbias, s.terms);
    }
    job.tickets.finish(job.item);
  }

  void attend_head(const BackwardJob& job, const BackwardScratch<T, S>& s, Range rows,
                   int64_t key_head) const {
    const Range heads = query_heads(problem_, key_head);
    if (heads.first >= heads.last) return;
    load_keys(job, s, key_head);
    const int64_t nq = job.tile.tile.q.size();
    const int64_t count = blocks(nq, block_);
    const int64_t first = query_heads(problem_, job.heads.first).first;
    int steps = 0;
    for (int64_t head = heads.first; head < heads.last; ++head) {
      for (int64_t b = rows.first / block_; b * block_ < rows.last; ++b) {
        step(job, s,
             {.head = head,
              .q0 = b * block_,
              .nq = std::min(block_, nq - b * block_),
              .position = (head - first) * count + b});
        if (++steps % kFlush == 0) flush(job, s, key_head);
      }
    }
    if (steps % kFlush != 0) flush(job, s, key_head);
  }

  static PairBlock pairs(const BackwardJob& job, const BackwardStep& step) {
    return {.terms = job.call.terms,
            .tile = job.tile,
            .scale = job.call.scale,
            .head = step.head,
            .q0 = step.q0,
            .nq = step.nq,
            .k0 = job.k0,
            .nk = job.nk};
  }

  void load_keys(const BackwardJob& job, const BackwardScratch<T, S>& s, int64_t head) const {
    const int64_t lanes = padded(job.nk);
    const int64_t row = job.tile.k_row + job.k0;
    simd_.load({job.call.v, row, job.nk, head}, s.dout, ld_v_);
    transpose(s.dout, ld_v_, lanes, problem_.dim_v, S{1}, s.v_lanes, block_);
    simd_.load({job.call.k, row, job.nk, head}, s.k, ld_qk_);
    transpose(s.k, ld_qk_, lanes, problem_.dim_qk, ScoreUnits<T>(job.call.scale).factor, s.k_lanes,
              block_);
    terms_.drop_infinite(s.k, job.nk * ld_qk_);
    clear(job, s);
  }

  void clear(const BackwardJob& job, const BackwardScratch<T, S>& s) const {
    std::fill_n(s.dk, padded(job.nk) * ld_qk_, T{0});
    std::fill_n(s.dv, padded(job.nk) * ld_v_, T{0});
  }

  void load_queries(const BackwardJob& job, const BackwardStep& step,
                    const BackwardScratch<T, S>& s) const {
    const int64_t row = job.tile.q_row + step.q0;
    simd_.load({job.call.q, row, step.nq, step.head}, s.q, ld_qk_);
    simd_.load({job.call.dout, row, step.nq, step.head}, s.dout, ld_v_);
    const T* const lse = static_cast<const T*>(job.call.lse.data);
    const T* const delta = static_cast<const T*>(job.call.delta.data);
    if constexpr (!std::is_same_v<S, T>) {
      std::copy_n(s.dout, padded(step.nq) * ld_v_, s.dout_wide);
    }
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const double natural = terms_.units(job.call.scale).natural;
    std::fill_n(s.lse_rest, padded(step.nq), T{0});
    for (int64_t i = 0; i < step.nq; ++i) {
      const T value = lse[job.call.lse.offset(row + i, step.head)];
      const double scores = value / natural;
      s.lse[i] = static_cast<T>(scores);
      if (std::isfinite(s.lse[i])) s.lse_rest[i] = static_cast<T>(scores - s.lse[i]);
      // +inf makes every probability of a row that sees no key 0.
      if (value == -kInfinity) s.lse[i] = kInfinity;
      s.delta[i] = delta[job.call.delta.offset(row + i, step.head)];
    }
    std::fill(s.lse + step.nq, s.lse + padded(step.nq), kInfinity);
    std::fill(s.delta + step.nq, s.delta + padded(step.nq), S{0});
  }

  void step(const BackwardJob& job, const BackwardScratch<T, S>& s,
            const BackwardStep& step) const {
    load_queries(job, step, s);
    const int64_t queries = padded(step.nq);
    const int64_t keys = padded(job.nk);
    for_chunks(queries, [&](int64_t q, int i) {
      for_chunks(keys, [&](int64_t k, int j) {
        products_.score[i][j](s.k_lanes + k, s.q + q * ld_qk_, s.p + q * block_ + k);
        products_.value[i][j](s.v_lanes + k, s.dout_wide + q * ld_v_, s.dp + q * block_ + k);
      });
    });
    const PairBlock block = pairs(job, step);
    terms_.make_logits(block, s.p, s.terms);
    terms_.make_dropout(block, s.terms);
    score_gradients(job, s, queries, keys);
    hide(job, step, s);
    terms_.finish_gradient(block, job.call.dbias, s.ds, s.terms);
    terms_.drop_unweighted(block, s.p, s.dout, ld_v_);
    terms_.drop_unweighted(block, s.ds, s.q, ld_qk_);
    for_chunks(queries, [&](int64_t q, int i) {
      for_chunks(keys, [&](int64_t k, int j) {
        products_.dv[i][j](s.dout + q * ld_v_, s.p + q * block_ + k, s.dv + k * ld_v_);
        products_.dk[i][j](s.q + q * ld_qk_, s.ds + q * block_ + k, s.dk + k * ld_qk_);
        products_.dq[k > 0][i][j](s.k + k * ld_qk_, s.ds + q * block_ + k, s.dq + q * ld_qk_);
      });
    });
    add_dq(job, step, s);
  }

  /// P and dS = P (dP - delta).
  void score_gradients(const BackwardJob& job, const BackwardScratch<T, S>& s, int64_t queries,
                       int64_t keys) const {
    const GradientBlock<T, S> block = {.scores = s.p,
                                       .gradients = s.dp,
                                       .ds = s.ds,
                                       .dropout = s.terms.dropout,
                                       .ld = block_,
                                       .lanes = keys,
                                       .queries = queries,
                                       .lse = s.lse,
                                       .lse_rest = s.lse_rest,
                                       .delta = s.delta,
                                       .log2 = terms_.units(job.call.scale).log2};
    if constexpr (std::is_same_v<S, T>) {
      simd_.gradient(block);
    } else {
      simd_.wide_gradient(block);
    }
  }

  /// Zeroes what unseen pairs and padding left behind, be it inf or NaN.
  void hide(const BackwardJob& job, const BackwardStep& step,
            const BackwardScratch<T, S>& s) const {
    const Band band = shifted(job.tile.tile.band, step.q0, job.k0);
    const int64_t lanes = padded(job.nk);
    const int64_t padding = padded(step.nq) - step.nq;
    if (padding == 0 && lanes == job.nk && full(band, step.nq, job.nk)) return;
    for (T* const block : {s.p, s.ds}) {
      for (int64_t i = 0; i < step.nq; ++i) {
        const Range seen = visible_keys(band, i, job.nk);
        std::fill_n(block + i * block_, seen.first, T{0});
        std::fill(block + i * block_ + seen.last, block + i * block_ + lanes, T{0});
      }
      std::fill_n(block + step.nq * block_, padding * block_, T{0});
    }
  }

  /// Blocks of keys add to a row of dq in ascending order, whoever computes them.
  void add_dq(const BackwardJob& job, const BackwardStep& step,
              const BackwardScratch<T, S>& s) const {
    job.tickets.pass(job.item, step.position);
    if (job.before >= 0) job.tickets.await(job.before, step.position + 1);
    add(job.call.dq, job.tile.q_row + step.q0, step.nq, step.head, s.dq, ld_qk_, job.call.scale);
    job.tickets.pass(job.item, step.position + 1);
  }

  void flush(const BackwardJob& job, const BackwardScratch<T, S>& s, int64_t head) const {
    const int64_t row = job.tile.k_row + job.k0;
    add(job.call.dk, row, job.nk, head, s.dk, ld_qk_, job.call.scale);
    add(job.call.dv, row, job.nk, head, s.dv, ld_v_, 1);
    clear(job, s);
  }

  void add(const TensorView& view, int64_t row, int64_t count, int64_t head, const T* src,
           int64_t ld, double scale) const {
    T* const data = static_cast<T*>(view.data);
    for (int64_t i = 0; i < count; ++i) {
      simd_.merge(data + view.offset(row + i, head), src + i * ld, 1, static_cast<T>(scale),
                  view.dim);
    }
  }

  TileProblem problem_;
  std::shared_ptr<Workers> workers_;
  int64_t block_;
  int64_t ld_qk_;
  int64_t ld_v_;
  int64_t slot_ = 0;  // elements of one thread's scratch
  BackwardOrder order_;
  TiledTerms<T> terms_;
  const Simd<T>& simd_ = simd<T>();
  BackwardProducts<T, S> products_;
};

}  // namespace

std::shared_ptr<const Plan> make_tiled_backward(const TileProblem& problem,
                                                std::shared_ptr<Workers> workers) {
  if (problem.dtype == DType::kF64) {
    return std::make_shared<TiledBackward<double, double>>(problem, std::move(workers));
  }
  if (problem.dtype == DType::kF32) {
    return std::make_shared<TiledBackward<float, double>>(problem, std::move(workers));
  }
  return std::make_shared<TiledBackward<float, float>>(problem, std::move(workers));
}

}  // namespace longspan::cpu
