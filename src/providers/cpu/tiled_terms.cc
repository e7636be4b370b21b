#include "providers/cpu/tiled_terms.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numbers>

#include "providers/cpu/products.h"
#include "providers/cpu/terms.h"

namespace longspan::cpu {
namespace {

constexpr int64_t kMaxBlock = chunk_rows(kLevels - 1);

/// One value for each row or lane of a block, zeros beyond.
template <class T>
using Line = std::array<T, kMaxBlock>;

template <class T, class Value>
Line<T> line(int64_t count, Value&& value) {
  Line<T> result{};
  for (int64_t i = 0; i < count; ++i) result[static_cast<size_t>(i)] = static_cast<T>(value(i));
  return result;
}

}  // namespace

template <class T>
TiledTerms<T>::TiledTerms(const TileProblem& problem, int64_t block)
    : block_(block), forward_(problem.direction == Direction::kForward) {
  const Features& features = problem.features;
  const bool modified = features.modification.has_value();
  logits_ = features.softcap || features.alibi || features.bias != Bias::kNone || modified;
  chain_ = !forward_ && (features.softcap || modified);
  dropout_ = features.dropout;
  alibi_ = features.alibi;
  bias_ = features.bias;
}

template <class T>
TermsScratch<T> TiledTerms<T>::scratch(Pieces<T>& pieces) const {
  TermsScratch<T> s;
  if (bias_ != Bias::kNone) s.bias = pieces.take(block_ * block_);
  if (bias_ != Bias::kNone && forward_) s.bias_lanes = pieces.take(block_ * block_);
  if (bias_ == Bias::k111S && !forward_) s.sums = pieces.template take_as<double>(block_);
  if (chain_) s.chain = pieces.take(block_ * block_);
  if (dropout_) s.dropout = pieces.take(block_ * block_);
  return s;
}

template <class T>
SoftmaxUnits<T> TiledTerms<T>::units(double scale) const {
  if (logits_) return {static_cast<T>(std::numbers::log2e), 1};
  const ScoreUnits<T> units(scale);
  return {units.log2, units.natural};
}

template <class T>
void TiledTerms<T>::make_logits(const PairBlock& pairs, T* scores, const TermsScratch<T>& s) const {
  if (!logits_) return;
  const ScoreTerms& terms = pairs.terms;
  const double natural = ScoreUnits<T>(pairs.scale).natural;
  const bool capped = terms.softcap != 0;
  LogitBlock<T> block = {.scores = scores,
                         .ld = block_,
                         .lanes = padded(forward_ ? pairs.nq : pairs.nk),
                         .rows = forward_ ? pairs.nk : pairs.nq,
                         .scale = static_cast<T>(capped ? natural / terms.softcap : natural),
                         .softcap = static_cast<T>(terms.softcap),
                         .chain = s.chain};
  if (alibi_) {
    const TensorView& slopes = terms.slopes;
    block.slope = static_cast<const T*>(slopes.data)[slopes.offset(0, pairs.problem_head())];
  }
  // Counted from the first key, where numbers are small enough for T.
  const int64_t origin = pairs.pair(0, 0).k;
  const Line<T> queries =
      line<T>(pairs.nq, [&](int64_t i) { return pairs.pair(i, 0).q + pairs.tile.shift - origin; });
  const Line<T> keys = line<T>(pairs.nk, [&](int64_t j) { return pairs.pair(0, j).k - origin; });
  block.row_place = forward_ ? keys.data() : queries.data();
  block.lane_place = forward_ ? queries.data() : keys.data();
  if (bias_ != Bias::kNone) block.bias = load_bias(pairs, s);
  terms_simd_.logits(block);
  if (chain_ && !capped) std::fill_n(s.chain, pairs.nq * block_, T{1});
  if (terms.modification != nullptr) modify(pairs, scores, s.chain);
}

/// The bias of a block, laid out like the scores.
template <class T>
const T* TiledTerms<T>::load_bias(const PairBlock& pairs, const TermsScratch<T>& s) const {
  const TensorView& bias = pairs.terms.bias;
  const Tile& tile = pairs.tile.tile;
  const int64_t first = bias_offset(bias, pairs.pair(0, 0)) * size_of(bias.dtype);
  const TensorView rows = {.data = static_cast<std::byte*>(bias.data) + first,
                           .dtype = bias.dtype,
                           .seq = pairs.nq,
                           .heads = 1,
                           .dim = pairs.nk,
                           .stride_seq = bias.seq == 1 ? 0 : bias.stride_seq * tile.q.stride};
  simd_.load({.view = rows, .row = 0, .count = pairs.nq, .head = 0, .step = tile.k.stride}, s.bias,
             block_);
  if (!forward_) return s.bias;
  transpose(s.bias, block_, padded(pairs.nq), padded(pairs.nk), T{1}, s.bias_lanes, block_);
  return s.bias_lanes;
}

template <class T>
void TiledTerms<T>::modify(const PairBlock& pairs, T* scores, T* chain) const {
  const Modification& callbacks = *pairs.terms.modification;
  const Band band = shifted(pairs.tile.tile.band, pairs.q0, pairs.k0);
  for (int64_t i = 0; i < pairs.nq; ++i) {
    const Range seen = visible_keys(band, i, pairs.nk);
    for (int64_t j = seen.first; j < seen.last; ++j) {
      const int64_t at = forward_ ? j * block_ + i : i * block_ + j;
      const ScoreIndex pair = pairs.pair(i, j);
      if (callbacks.visible && !callbacks.visible(pair)) {
        scores[at] = -std::numeric_limits<T>::infinity();
        continue;
      }
      if (!callbacks.score) continue;
      const double before = scores[at];
      scores[at] = static_cast<T>(callbacks.score(before, pair));
      if (chain != nullptr)
        chain[at] = static_cast<T>(chain[at] * callbacks.derivative(before, pair));
    }
  }
}

template <class T>
void TiledTerms<T>::make_dropout(const PairBlock& pairs, const TermsScratch<T>& s) const {
  if (!dropout_) return;
  const Dropout& dropout = pairs.terms.dropout;
  const ScoreIndex first = pairs.pair(0, 0);
  const Line<uint32_t> queries =
      line<uint32_t>(pairs.nq, [&](int64_t i) { return pairs.pair(i, 0).q; });
  const Line<uint32_t> keys =
      line<uint32_t>(pairs.nk, [&](int64_t j) { return pairs.pair(0, j).k; });
  terms_simd_.dropout({.factors = s.dropout,
                       .ld = block_,
                       .lanes = padded(forward_ ? pairs.nq : pairs.nk),
                       .rows = padded(forward_ ? pairs.nk : pairs.nq),
                       .row_token = forward_ ? keys.data() : queries.data(),
                       .lane_token = forward_ ? queries.data() : keys.data(),
                       .lanes_are_queries = forward_,
                       .sequence = static_cast<uint32_t>(first.sequence),
                       .head = static_cast<uint32_t>(first.head),
                       .key = dropout.key(),
                       .threshold = dropout.threshold(),
                       .factor = static_cast<T>(dropout.keep_factor())});
}

template <class T>
void TiledTerms<T>::finish_gradient(const PairBlock& pairs, const TensorView& dbias, T* ds,
                                    const TermsScratch<T>& s) const {
  if (bias_ != Bias::kNone) add_bias_gradient(pairs, dbias, ds, s.sums);
  if (chain_) simd_.multiply({ds, s.chain, block_, padded(pairs.nk), pairs.nq});
}

template <class T>
void TiledTerms<T>::add_bias_gradient(const PairBlock& pairs, const TensorView& dbias, const T* ds,
                                      double* sums) const {
  const int64_t step = pairs.tile.tile.k.stride;
  for (int64_t i = 0; i < pairs.nq; ++i) {
    const T* const row = ds + i * block_;
    if (sums != nullptr) {
      for (int64_t j = 0; j < pairs.nk; ++j) sums[j] += row[j];
      continue;
    }
    T* const target = static_cast<T*>(dbias.data) + bias_offset(dbias, pairs.pair(i, 0));
    for (int64_t j = 0; j < pairs.nk; ++j) target[j * step] += row[j];
  }
}

template <class T>
void TiledTerms<T>::start_keys(const TermsScratch<T>& s) const {
  if (s.sums != nullptr) std::fill_n(s.sums, block_, 0.0);
}

template <class T>
void TiledTerms<T>::finish_keys(const PairBlock& pairs, const TensorView& dbias,
                                const TermsScratch<T>& s) const {
  if (s.sums == nullptr) return;
  T* const target = static_cast<T*>(dbias.data) + bias_offset(dbias, pairs.pair(0, 0));
  for (int64_t j = 0; j < pairs.nk; ++j) {
    T& element = target[j * pairs.tile.tile.k.stride];
    element = static_cast<T>(element + s.sums[j]);
  }
}

template class TiledTerms<float>;
template class TiledTerms<double>;

}  // namespace longspan::cpu
