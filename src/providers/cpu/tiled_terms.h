// Score terms and dropout of the tiled provider: the same steps on blocks of both directions.
#pragma once

#include <atomic>
#include <cstdint>

#include "longspan/provider.h"
#include "providers/cpu/blocks.h"
#include "providers/cpu/simd.h"
#include "providers/cpu/terms_simd.h"

namespace longspan::cpu {

/// A block of pairs of one query head. Queries and keys are counted inside the tile.
struct PairBlock {
  const ScoreTerms& terms;
  const PlacedTile& tile;
  double scale = 1;
  int64_t head = 0;  // of those that q holds
  int64_t q0 = 0;
  int64_t nq = 0;
  int64_t k0 = 0;
  int64_t nk = 0;

  int64_t problem_head() const { return terms.head_begin + head; }
  ScoreIndex pair(int64_t i, int64_t j) const {
    return {tile.tile.sequence, problem_head(), tile.tile.q.at(q0 + i), tile.tile.k.at(k0 + j)};
  }
};

/// What one thread needs for them; null where the features do not ask for it.
template <class T>
struct TermsScratch {
  T* bias = nullptr;        // [queries][block]
  T* bias_lanes = nullptr;  // forward: [keys][block]
  T* capped = nullptr;      // backward: [queries][block], derivatives of the softcap
  T* modified = nullptr;    // likewise of the modification, 0 for pairs that it hides
  T* dropout = nullptr;     // as the scores: factors of probabilities
  double* sums = nullptr;   // backward, bias=1,1,1,s: [block], gradients of a block of keys
};

/// In which units softmax takes the scores in, see ScoreUnits.
template <class T>
struct SoftmaxUnits {
  T log2 = 1;
  double natural = 1;
};

/// Blocks of scores are [keys][block] forward and [queries][block] backward.
template <class T>
class TiledTerms {
 public:
  TiledTerms(const TileProblem& problem, int64_t block);

  TermsScratch<T> scratch(Pieces<T>& pieces) const;
  SoftmaxUnits<T> units(double scale) const;

  /// Scores in score units become logits, with their derivatives in scratch. A pair that the
  /// modification hides gets -inf. Without terms nothing happens.
  void make_logits(const PairBlock& pairs, T* scores, const TermsScratch<T>& s) const;

  /// Fills the factors of dropout; without dropout there are none.
  void make_dropout(const PairBlock& pairs, const TermsScratch<T>& s) const;

  /// Adds the gradients of a block's logits to those of the bias, then turns them into gradients of
  /// the scores.
  void finish_gradient(const PairBlock& pairs, const TensorView& dbias, T* ds,
                       const TermsScratch<T>& s) const;

  /// Rows that the modification hides may hold anything, which 0 times it must not bring back. Rows
  /// of the operand that stand for rows of `weights` without weight become 0.
  void drop_unweighted(const PairBlock& pairs, const T* weights, T* operand, int64_t ld) const;
  /// The same for an operand that other weights meet later: numbers that are not finite become 0.
  /// Where they have weight, the weights are NaN and say so.
  void drop_infinite(T* operand, int64_t count) const;

  /// Around the blocks of queries of a block of keys, `pairs`.
  void start_keys(const TermsScratch<T>& s) const;
  void finish_keys(const PairBlock& pairs, const TensorView& dbias, const TermsScratch<T>& s) const;

 private:
  const T* load_bias(const PairBlock& pairs, const TermsScratch<T>& s) const;
  void modify(const PairBlock& pairs, T* scores, T* derivatives) const;
  void add_bias_gradient(const PairBlock& pairs, const TensorView& dbias, const T* ds,
                         double* sums) const;

  int64_t block_;
  bool forward_;
  Features features_;
  bool logits_;  // scores are turned into logits
  const Simd<T>& simd_ = simd<T>();
  const TermsSimd<T>& terms_simd_ = terms_simd<T>();
};

/// Raises the largest logit of a head. Calls in any order from any threads give the same.
template <class T>
void raise(const TensorView& max_logit, int64_t head, T value) {
  std::atomic_ref<T> at(static_cast<T*>(max_logit.data)[max_logit.offset(0, head)]);
  T before = at.load(std::memory_order_relaxed);
  while (before < value && !at.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace longspan::cpu
