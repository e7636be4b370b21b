// Scores under ScoreTerms, one pair at a time in float64: what all providers must agree with.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "longspan/provider.h"
#include "providers/cpu/reference_rows.h"

namespace longspan::cpu {

/// Elements from the first of a bias, or of its gradient, to that of `pair`. Extents of 1 serve all
/// sequences, queries or heads.
inline int64_t bias_offset(const TensorView& bias, const ScoreIndex& pair) {
  const auto step = [](int64_t index, int64_t extent, int64_t stride) {
    return extent == 1 ? 0 : index * stride;
  };
  return step(pair.sequence, bias.batch, bias.stride_batch) +
         step(pair.q, bias.seq, bias.stride_seq) + step(pair.head, bias.heads, bias.stride_head) +
         pair.k;
}

/// The terms of one tile and one query head. Keeps references to both. Pairs are query i and key j
/// of the tile; a score of -inf hides its pair, whose probability and gradients are 0.
class PairTerms {
 public:
  static constexpr double kHidden = -std::numeric_limits<double>::infinity();

  /// A score and its derivatives, 0 for a hidden pair.
  struct Differentiated {
    double score = kHidden;
    double by_bias = 0;
    double by_product = 0;
  };

  /// `head` is one of those that q holds.
  PairTerms(const ScoreTerms& terms, const PlacedTile& tile, int64_t head)
      : terms_(terms),
        tile_(tile),
        head_(terms.head_begin + head),
        slope_(terms.slopes.data == nullptr ? 0
                                            : element(terms.slopes, terms.slopes.offset(0, head_))),
        plain_(terms.softcap == 0 && slope_ == 0 && terms.bias.data == nullptr &&
               terms.modification == nullptr) {}

  /// The pair as callbacks, bias and dropout count it.
  ScoreIndex index(int64_t i, int64_t j) const {
    return {tile_.tile.sequence, head_, tile_.tile.q.at(i), tile_.tile.k.at(j)};
  }

  /// The score that softmax takes in; `product` is scale q.k.
  double score(double product, int64_t i, int64_t j) const {
    if (plain_) return product;
    const ScoreIndex pair = index(i, j);
    return modified(biased(capped(product), pair), pair);
  }

  Differentiated differentiated(double product, int64_t i, int64_t j) const {
    if (plain_) return {product, 1, 1};
    const ScoreIndex pair = index(i, j);
    const double before = biased(capped(product), pair);
    const double score = modified(before, pair);
    if (score == kHidden) return {};
    const double by_bias = derivative(before, pair);
    return {score, by_bias, by_bias * capped_derivative(product)};
  }

  /// What dropout multiplies the pair's probability by: 0 or 1 / (1 - probability).
  double keep(int64_t i, int64_t j) const {
    if (terms_.dropout.probability == 0) return 1;
    return terms_.dropout.keeps(index(i, j)) ? terms_.dropout.keep_factor() : 0;
  }

  // The steps of the score in their order.

  double capped(double product) const {
    return terms_.softcap == 0 ? product : terms_.softcap * std::tanh(product / terms_.softcap);
  }

  double capped_derivative(double product) const {
    if (terms_.softcap == 0) return 1;
    // 1 - tanh^2 without its cancellation where tanh is close to 1.
    const double e = std::exp(-2 * std::abs(product / terms_.softcap));
    return 4 * e / ((1 + e) * (1 + e));
  }

  double biased(double score, const ScoreIndex& pair) const {
    if (slope_ != 0) score -= slope_ * static_cast<double>(std::abs(pair.q + tile_.shift - pair.k));
    if (terms_.bias.data == nullptr) return score;
    return score + element(terms_.bias, bias_offset(terms_.bias, pair));
  }

  double modified(double score, const ScoreIndex& pair) const {
    const Modification* const callbacks = terms_.modification;
    if (callbacks == nullptr) return score;
    if (callbacks->visible && !callbacks->visible(pair)) return kHidden;
    return callbacks->score ? callbacks->score(score, pair) : score;
  }

  /// Derivative of modified() where it hides nothing, at the score that it took in.
  double derivative(double score, const ScoreIndex& pair) const {
    const Modification* const callbacks = terms_.modification;
    return callbacks != nullptr && callbacks->score ? callbacks->derivative(score, pair) : 1;
  }

 private:
  const ScoreTerms& terms_;
  const PlacedTile& tile_;
  int64_t head_;  // of the problem's
  double slope_;
  bool plain_;
};

}  // namespace longspan::cpu
