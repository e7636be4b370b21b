#include <cmath>
#include <limits>

#include "base/workers.h"
#include "providers/cpu/blocks.h"
#include "providers/cpu/products.h"
#include "providers/cpu/simd.h"
#include "providers/cpu/tiled.h"
#include "providers/cpu/tiled_terms.h"
#include "providers/cpu/waves.h"
#include "providers/rules.h"

namespace longspan::cpu {
namespace {

/// One thread's buffers: blocks of `block` rows.
template <class T>
struct Scratch {
  T* q = nullptr;     // [dim_qk][block], scaled: one query per lane
  T* k = nullptr;     // [block][ld_qk]
  T* v = nullptr;     // [block][ld_v]
  T* s = nullptr;     // [keys][block]: scores, then probabilities
  T* o = nullptr;     // [queries][ld_v], not yet divided by sum
  T* part = nullptr;  // [queries][ld_v]: one block's contribution
  T* max = nullptr;   // [block] each
  T* sum = nullptr;
  T* decay = nullptr;
  TermsScratch<T> terms;
};

/// A block of queries of one head in one tile.
struct Job {
  const ForwardTiles& call;
  const PlacedTile& tile;
  int64_t head = 0;
  int64_t q0 = 0;  // inside the tile
  int64_t nq = 0;
};

template <class T>
class TiledForward final : public Plan {
 public:
  TiledForward(const TileProblem& problem, std::shared_ptr<Workers> workers)
      : problem_(problem),
        workers_(std::move(workers)),
        block_(block_rows<T>(problem)),
        ld_qk_(padded(problem.dim_qk)),
        ld_v_(padded(problem.dim_v)),
        terms_(problem, block_) {
    Pieces<T> count(nullptr);
    scratch(count);
    slot_ = count.taken();
    score_ = make_products<T>(block_, [&](int64_t queries, int64_t keys) {
      return ProductShape{.m = queries,
                          .n = keys,
                          .k = problem_.dim_qk,
                          .lda = block_,
                          .ldb = ld_qk_,
                          .ldc = block_};
    });
    for (const bool adds : {false, true}) {
      value_[adds] = make_products<T>(block_, [&](int64_t queries, int64_t keys) {
        return ProductShape{.m = ld_v_,
                            .n = queries,
                            .k = keys,
                            .lda = ld_v_,
                            .ldb = block_,
                            .ldc = ld_v_,
                            .transposed = true,
                            .adds = adds};
      });
    }
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(slot_ * workers_->threads()) * sizeof(T);
  }

  Status forward(const ForwardTiles& call, Workspace workspace) const override {
    LONGSPAN_CHECK_OK(fits(problem_, call, Carries::kAccumulator));
    LONGSPAN_CHECK_OK(fits(workspace, workspace_bytes()));
    T* const memory = static_cast<T*>(workspace.data);
    for (size_t begin = 0; begin < call.tiles.size();) {
      const Wave wave(call.tiles, begin, Writes::kQueryRows,
                      [&](const PlacedTile& t) { return items(live(t, call.lengths).tile); });
      wave.run(*workers_, [&](size_t index, int64_t item, int64_t, int slot) {
        Pieces<T> pieces(memory + slot * slot_);
        const PlacedTile tile = live(call.tiles[index], call.lengths);
        attend(job(call, tile, item), scratch(pieces));
      });
      begin = wave.end();
    }
    return {};
  }

  Status backward(const BackwardTiles& call, Workspace) const override {
    return fits(problem_, call, Carries::kAccumulator);
  }

 private:
  Scratch<T> scratch(Pieces<T>& pieces) const {
    Scratch<T> s;
    s.q = pieces.take(problem_.dim_qk * block_);
    s.k = pieces.take(block_ * ld_qk_);
    s.v = pieces.take(block_ * ld_v_);
    s.s = pieces.take(block_ * block_);
    s.o = pieces.take(block_ * ld_v_);
    s.part = pieces.take(block_ * ld_v_);
    s.max = pieces.take(block_);
    s.sum = pieces.take(block_);
    s.decay = pieces.take(block_);
    s.terms = terms_.scratch(pieces);
    return s;
  }

  int64_t items(const Tile& tile) const {
    return empty(tile) ? 0 : blocks(tile.q.size(), block_) * problem_.heads_q;
  }

  Job job(const ForwardTiles& call, const PlacedTile& tile, int64_t item) const {
    const int64_t nq = tile.tile.q.size();
    const int64_t count = blocks(nq, block_);
    // The last blocks of a causal tile see most keys: large work first evens out the cores.
    const int64_t q0 = (count - 1 - item % count) * block_;
    return {.call = call,
            .tile = tile,
            .head = item / count,
            .q0 = q0,
            .nq = std::min(block_, nq - q0)};
  }

  void attend(const Job& job, const Scratch<T>& s) const {
    const Range keys =
        seen_keys(job.tile.tile.band, job.q0, job.q0 + job.nq, job.tile.tile.k.size());
    if (keys.first >= keys.last) return;
    load_queries(job, s);
    for (int64_t k0 = keys.first; k0 < keys.last; k0 += block_) {
      attend_keys(job, s, k0, std::min(block_, keys.last - k0), k0 == keys.first);
    }
    store(job, s);
  }

  void load_queries(const Job& job, const Scratch<T>& s) const {
    const int64_t lanes = padded(job.nq);
    simd_.load({job.call.q, job.tile.q_row + job.q0, job.nq, job.head}, s.k, ld_qk_);
    transpose(s.k, ld_qk_, lanes, problem_.dim_qk, ScoreUnits<T>(job.call.scale).factor, s.q,
              block_);
    std::fill_n(s.max, lanes, -std::numeric_limits<T>::infinity());
    std::fill_n(s.sum, lanes, T{0});
  }

  void attend_keys(const Job& job, const Scratch<T>& s, int64_t k0, int64_t nk, bool first) const {
    const int64_t lanes = padded(job.nq);
    const int64_t keys = padded(nk);
    const int64_t head = key_head(problem_, job.head);
    simd_.load({job.call.k, job.tile.k_row + k0, nk, head}, s.k, ld_qk_);
    simd_.load({job.call.v, job.tile.k_row + k0, nk, head}, s.v, ld_v_);
    for_chunks(lanes, [&](int64_t q, int i) {
      for_chunks(keys, [&](int64_t k, int j) {
        score_[i][j](s.q + q, s.k + k * ld_qk_, s.s + k * block_ + q);
      });
    });
    const PairBlock pairs = {.terms = job.call.terms,
                             .tile = job.tile,
                             .scale = job.call.scale,
                             .head = job.head,
                             .q0 = job.q0,
                             .nq = job.nq,
                             .k0 = k0,
                             .nk = nk};
    terms_.make_logits(pairs, s.s, s.terms);
    const Band band = shifted(job.tile.tile.band, job.q0, k0);
    if (!full(band, job.nq, nk)) hide(band, job.nq, nk, s.s);
    simd_.softmax({.scores = s.s,
                   .ld = block_,
                   .lanes = lanes,
                   .keys = nk,
                   .max = s.max,
                   .sum = s.sum,
                   .decay = s.decay,
                   .log2 = terms_.units(job.call.scale).log2});
    terms_.make_dropout(pairs, s.terms);
    if (s.terms.dropout != nullptr) simd_.multiply({s.s, s.terms.dropout, block_, lanes, nk});
    std::fill_n(s.s + nk * block_, (keys - nk) * block_, T{0});
    terms_.drop_unweighted(pairs, s.s, s.v, ld_v_);
    T* const target = first ? s.o : s.part;
    for_chunks(lanes, [&](int64_t q, int i) {
      for_chunks(keys, [&](int64_t k, int j) {
        value_[k > 0][i][j](s.v + k * ld_v_, s.s + k * block_ + q, target + q * ld_v_);
      });
    });
    if (!first) simd_.blend(s.o, s.part, s.decay, job.nq, ld_v_);
  }

  /// Scores of unseen pairs become -inf.
  void hide(Band band, int64_t nq, int64_t nk, T* scores) const {
    constexpr T kNone = -std::numeric_limits<T>::infinity();
    const Band queries = transposed(band);
    for (int64_t j = 0; j < nk; ++j) {
      const Range seen = visible_keys(queries, j, nq);
      T* row = scores + j * block_;
      std::fill(row, row + seen.first, kNone);
      std::fill(row + seen.last, row + nq, kNone);
    }
  }

  /// Merges the block into the carried rows. Rows that saw no key stay as they are.
  void store(const Job& job, const Scratch<T>& s) const {
    const double natural = terms_.units(job.call.scale).natural;
    T largest = -std::numeric_limits<T>::infinity();
    for (int64_t i = 0; i < job.nq; ++i) {
      if (s.sum[i] == 0) continue;  // else at least 1, or NaN
      largest = std::max(largest, s.max[i]);
      const int64_t row = job.tile.q_row + job.q0 + i;
      T* const o = static_cast<T*>(job.call.o.data) + job.call.o.offset(row, job.head);
      T* const lse = static_cast<T*>(job.call.lse.data) + job.call.lse.offset(row, job.head);
      const double sum = s.sum[i];
      const double here = s.max[i] * natural + std::log(sum);
      const double carried = *lse;
      if (carried == -std::numeric_limits<double>::infinity()) {
        simd_.merge(o, s.o + i * ld_v_, 0, static_cast<T>(1 / sum), problem_.dim_v);
        *lse = static_cast<T>(here);
        continue;
      }
      const double top = std::max(here, carried);
      const double keep = std::exp(carried - top);
      const double add = std::exp(here - top);
      const double total = keep + add;
      simd_.merge(o, s.o + i * ld_v_, static_cast<T>(keep / total),
                  static_cast<T>(add / (total * sum)), problem_.dim_v);
      *lse = static_cast<T>(top + std::log(total));
    }
    if (!problem_.features.max_logit) return;
    raise(job.call.max_logit, job.call.terms.head_begin + job.head,
          static_cast<T>(largest * natural));
  }

  TileProblem problem_;
  std::shared_ptr<Workers> workers_;
  int64_t block_;
  int64_t ld_qk_;
  int64_t ld_v_;
  int64_t slot_ = 0;  // elements of one thread's scratch
  TiledTerms<T> terms_;
  const Simd<T>& simd_ = simd<T>();
  ProductTable<T> score_;                 // [queries][keys]
  std::array<ProductTable<T>, 2> value_;  // [adds][queries][keys]
};

}  // namespace

std::shared_ptr<const Plan> make_tiled_forward(const TileProblem& problem,
                                               std::shared_ptr<Workers> workers) {
  if (problem.dtype == DType::kF64) {
    return std::make_shared<TiledForward<double>>(problem, std::move(workers));
  }
  return std::make_shared<TiledForward<float>>(problem, std::move(workers));
}

}  // namespace longspan::cpu
