// What becomes of one pair's score, in the oracle's own words: nothing here calls the library's
// masks, slopes or random numbers.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "inputs.h"

namespace longspan::testkit {

/// Philox4x32-10 as its authors define it (Salmon et al., "Parallel random numbers: as easy as 1,
/// 2, 3", section 3.3, and the known answers of Random123).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// ALiBi's slopes as the paper states them: a geometric sequence of ratio 2^(-8 / heads) for a
/// power of two; else those of the power below, then the odd terms of the power above.
std::vector<double> alibi_slopes(int64_t heads);

struct Score {
  double value = 0;      // what softmax takes
  double d_product = 0;  // derivative for q.k
  double d_bias = 0;     // derivative for the bias
};

class OracleTerms {
 public:
  explicit OracleTerms(const tool::Inputs& inputs);

  bool visible(const ScoreIndex& pair) const;
  Score score(const ScoreIndex& pair, double product) const;
  /// What dropout multiplies the pair's probability by.
  double kept(const ScoreIndex& pair) const;
  /// The extra logit of the denominator; -inf without a sink.
  double sink(int64_t head) const;
  /// Where the pair's bias lies in its tensor.
  int64_t bias_row(const ScoreIndex& pair) const;
  int64_t bias_head(const ScoreIndex& pair) const;

 private:
  bool in_mask(const ScoreIndex& pair) const;
  const Sequence& sequence(const ScoreIndex& pair) const {
    return problem_.lengths.sequences[static_cast<size_t>(pair.sequence)];
  }
  int64_t shift(const ScoreIndex& pair) const;

  const tool::Inputs& inputs_;
  const Problem& problem_;
  std::vector<double> slopes_;
  std::array<uint32_t, 2> key_ = {};
};

}  // namespace longspan::testkit
