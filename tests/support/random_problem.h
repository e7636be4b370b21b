// Random valid problems: ragged, padded, empty, with unused rows, in every layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "longspan/problem.h"

namespace longspan::test {

using Random = std::mt19937_64;

inline int64_t draw(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

inline bool one_in(Random& random, int64_t n) { return draw(random, 1, n) == 1; }

template <class T, size_t N>
const T& pick(Random& random, const T (&values)[N]) {
  return values[static_cast<size_t>(draw(random, 0, static_cast<int64_t>(N) - 1))];
}

struct RandomProblem {
  int64_t sequences = 4;  // at most
  int64_t longest = 24;
};

/// Query and key heads: one, equal, grouped, primes, fewer key heads than ranks.
inline std::pair<int64_t, int64_t> random_heads(Random& random) {
  constexpr std::pair<int64_t, int64_t> kHeads[] = {{1, 1},  {2, 1}, {4, 2}, {5, 5}, {6, 3},
                                                    {7, 1},  {8, 8}, {8, 4}, {8, 1}, {9, 3},
                                                    {14, 7}, {3, 3}, {10, 5}};
  return pick(random, kHeads);
}

inline Lengths random_lengths(Random& random, const RandomProblem& bounds) {
  const int64_t count = draw(random, 1, bounds.sequences);
  const bool batched = one_in(random, 4);
  const bool same_keys = one_in(random, 2);
  const bool padding = one_in(random, 2);
  const auto length = [&] { return one_in(random, 6) ? 0 : draw(random, 0, bounds.longest); };
  const auto gap = [&] { return padding && one_in(random, 2) ? draw(random, 0, 5) : 0; };
  Lengths lengths;
  for (int64_t i = 0; i < count; ++i) {
    Sequence s;
    s.q_length = length();
    s.k_length = same_keys ? s.q_length : length();
    s.q_extent = s.q_length + gap();
    s.k_extent = same_keys && !one_in(random, 8) ? s.k_length + (s.q_extent - s.q_length)
                                                 : s.k_length + gap();
    if (batched) {
      s.q_extent = bounds.longest + 3;
      s.k_extent = same_keys ? s.q_extent : bounds.longest + 1;
    }
    s.q_offset = lengths.tokens_q;
    s.k_offset = lengths.tokens_k;
    lengths.tokens_q += s.q_extent;
    lengths.tokens_k += s.k_extent;
    lengths.sequences.push_back(s);
  }
  if (!batched && one_in(random, 4)) lengths.tokens_q += draw(random, 0, 7);
  if (!batched && one_in(random, 4)) lengths.tokens_k += draw(random, 0, 7);
  return lengths;
}

inline bool equal_extents(const Lengths& lengths) {
  const Sequence& first = lengths.sequences.front();
  const auto count = static_cast<int64_t>(lengths.sequences.size());
  return std::all_of(lengths.sequences.begin(), lengths.sequences.end(),
                     [&](const Sequence& s) {
                       return s.q_extent == first.q_extent && s.k_extent == first.k_extent;
                     }) &&
         lengths.tokens_q == count * first.q_extent && lengths.tokens_k == count * first.k_extent;
}

inline Problem random_problem(Random& random, const RandomProblem& bounds = {}) {
  constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  constexpr Layout kLayouts[] = {Layout::kBSHD, Layout::kSBHD, Layout::kTHD};
  Problem problem;
  problem.dtype = pick(random, kTypes);
  std::tie(problem.heads_q, problem.heads_kv) = random_heads(random);
  problem.dim_qk = draw(random, 1, 20);
  problem.dim_v = one_in(random, 2) ? problem.dim_qk : draw(random, 1, 20);
  problem.mask = one_in(random, 3) ? MaskKind::kNone : MaskKind::kCausal;
  problem.align = one_in(random, 2) ? Align::kTopLeft : Align::kBottomRight;
  problem.scale = 0.25;
  problem.lengths = random_lengths(random, bounds);
  problem.layout = equal_extents(problem.lengths) ? pick(random, kLayouts) : Layout::kTHD;
  Result<Problem> checked = validated(std::move(problem));
  if (!checked.ok()) throw std::logic_error(checked.error().text());
  return std::move(checked).value();
}

}  // namespace longspan::test
