#include "providers/cpu/tiled_terms.h"

#include <algorithm>
#include <array>
#include <cmath>
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
    : block_(block),
      forward_(problem.direction == Direction::kForward),
      features_(problem.features),
      logits_(features_.softcap || features_.alibi || features_.bias != Bias::kNone ||
              features_.modification) {}

template <class T>
TermsScratch<T> TiledTerms<T>::scratch(Pieces<T>& pieces) const {
  TermsScratch<T> s;
  const auto take = [&](T*& piece, bool wanted) {
    if (wanted) piece = pieces.take(block_ * block_);
  };
  const bool biased = features_.bias != Bias::kNone;
  take(s.bias, biased);
  take(s.bias_lanes, biased && forward_);
  take(s.capped, features_.softcap && !forward_);
  take(s.modified, features_.modification && !forward_);
  take(s.dropout, features_.dropout);
  if (features_.bias == Bias::k111S && !forward_) s.sums = pieces.template take_as<double>(block_);
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
                         .derivative = s.capped};
  if (features_.alibi) {
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
  if (features_.bias != Bias::kNone) block.bias = load_bias(pairs, s);
  terms_simd_.logits(block);
  if (features_.modification) modify(pairs, scores, s.modified);
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
void TiledTerms<T>::modify(const PairBlock& pairs, T* scores, T* derivatives) const {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  const Modification& callbacks = *pairs.terms.modification;
  const Band band = shifted(pairs.tile.tile.band, pairs.q0, pairs.k0);
  if (derivatives != nullptr) std::fill_n(derivatives, pairs.nq * block_, T{1});
  for (int64_t i = 0; i < pairs.nq; ++i) {
    const Range seen = visible_keys(band, i, pairs.nk);
    for (int64_t j = seen.first; j < seen.last; ++j) {
      const int64_t at = forward_ ? j * block_ + i : i * block_ + j;
      const ScoreIndex pair = pairs.pair(i, j);
      const double before = scores[at];
      if (callbacks.visible && !callbacks.visible(pair)) {
        scores[at] = kHidden;
      } else if (callbacks.score) {
        scores[at] = static_cast<T>(callbacks.score(before, pair));
      }
      if (derivatives == nullptr) continue;
      if (scores[at] == kHidden) {
        derivatives[at] = 0;
      } else if (callbacks.score) {
        derivatives[at] = static_cast<T>(callbacks.derivative(before, pair));
      }
    }
  }
}

template <class T>
void TiledTerms<T>::make_dropout(const PairBlock& pairs, const TermsScratch<T>& s) const {
  if (!features_.dropout) return;
  const Dropout& dropout = pairs.terms.dropout;
  const ScoreIndex first = pairs.pair(0, 0);
  const Line<uint32_t> queries =
      line<uint32_t>(pairs.nq, [&](int64_t i) { return pairs.pair(i, 0).q; });
  const Line<uint32_t> keys =
      line<uint32_t>(pairs.nk, [&](int64_t j) { return pairs.pair(0, j).k; });
  terms_simd_.dropout({.factors = s.dropout,
                       .ld = block_,
                       .lanes = padded(forward_ ? pairs.nq : pairs.nk),
                       .rows = forward_ ? pairs.nk : pairs.nq,
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
  const auto multiply = [&](const T* factors) {
    if (factors != nullptr) simd_.multiply({ds, factors, block_, padded(pairs.nk), pairs.nq});
  };
  multiply(s.modified);
  if (features_.bias != Bias::kNone) add_bias_gradient(pairs, dbias, ds, s.sums);
  multiply(s.capped);
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
void TiledTerms<T>::drop_unweighted(const PairBlock& pairs, const T* weights, T* operand,
                                    int64_t ld) const {
  if (!features_.modification) return;
  const int64_t rows = forward_ ? pairs.nk : pairs.nq;
  const int64_t lanes = forward_ ? pairs.nq : pairs.nk;
  for (int64_t i = 0; i < rows; ++i) {
    const T* const row = weights + i * block_;
    const bool none = std::all_of(row, row + lanes, [](T weight) { return weight == 0; });
    if (none) std::fill_n(operand + i * ld, ld, T{0});
  }
}

template <class T>
void TiledTerms<T>::drop_infinite(T* operand, int64_t count) const {
  if (!features_.modification) return;
  std::replace_if(
      operand, operand + count, [](T value) { return !std::isfinite(value); }, T{0});
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
