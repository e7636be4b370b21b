// Random problems for property tests: ragged and empty sequences, padding, unused rows, grouped
// heads, both masks and alignments, all layouts, and every option alone and with others. Equal
// seeds give equal problems.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longspan/problem.h"

namespace longspan::testkit {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  /// Draws from `choices`, two bytes each, and once they are used up from an engine: a fuzzer finds
  /// out what the bytes decide.
  explicit Random(std::span<const uint8_t> choices) : engine_(choices.size()), choices_(choices) {}

  /// Uniform in [low, high]. Not std::uniform_int_distribution, whose draws differ by library.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(double probability) {
    return static_cast<double>(bits() >> 11) * 0x1p-53 < probability;
  }
  template <class Choices>
  auto one_of(const Choices& choices) {
    return choices[static_cast<size_t>(between(0, std::ssize(choices) - 1))];
  }
  uint64_t bits() {
    if (choices_.size() < 2) return engine_();
    const uint64_t choice = choices_[0] | uint64_t{choices_[1]} << 8;
    choices_ = choices_.subspan(2);
    return choice * 0x0001000100010001u;  // in the low bits and in the high ones
  }

 private:
  std::mt19937_64 engine_;
  std::span<const uint8_t> choices_;
};

struct ProblemLimits {
  int64_t sequences = 4;
  int64_t length = 40;
  int64_t key_heads = 4;
  int64_t group = 4;
  int64_t dim = 8;
  std::vector<DType> dtypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  bool cross = true;    // key lengths may differ from query lengths
  bool padding = true;  // extents beyond the lengths, unused rows at the end
  bool options = true;  // windows, prefix, chunks, and what changes scores and probabilities
  bool pages = false;   // keys and values may be paged, which backward refuses
};

/// Lengths of one side: mostly ragged, sometimes equal, now and then zero.
inline int64_t random_length(Random& random, const ProblemLimits& limits) {
  if (random.chance(0.12)) return 0;
  if (random.chance(0.15)) return 1;
  return random.between(1, limits.length);
}

inline Sequence random_sequence(Random& random, const ProblemLimits& limits) {
  Sequence sequence;
  sequence.q_length = random_length(random, limits);
  const bool cross = limits.cross && random.chance(0.4);
  sequence.k_length = cross ? random_length(random, limits) : sequence.q_length;
  sequence.q_extent = sequence.q_length;
  sequence.k_extent = sequence.k_length;
  if (limits.padding && random.chance(0.3)) sequence.q_extent += random.between(0, 5);
  if (limits.padding && random.chance(0.3)) sequence.k_extent += random.between(0, 5);
  return sequence;
}

/// All extents alike, as layouts with a batch dimension need them.
inline void level_extents(std::vector<Sequence>& sequences) {
  int64_t q = 0;
  int64_t k = 0;
  for (const Sequence& sequence : sequences) {
    q = std::max(q, sequence.q_extent);
    k = std::max(k, sequence.k_extent);
  }
  for (Sequence& sequence : sequences) {
    sequence.q_extent = q;
    sequence.k_extent = k;
  }
}

inline Lengths random_lengths(Random& random, const ProblemLimits& limits, Layout layout) {
  Lengths lengths;
  const int64_t count = random.between(1, limits.sequences);
  for (int64_t i = 0; i < count; ++i) {
    lengths.sequences.push_back(random_sequence(random, limits));
  }
  if (layout != Layout::kTHD) level_extents(lengths.sequences);
  for (Sequence& sequence : lengths.sequences) {
    sequence.q_offset = lengths.tokens_q;
    sequence.k_offset = lengths.tokens_k;
    lengths.tokens_q += sequence.q_extent;
    lengths.tokens_k += sequence.k_extent;
  }
  if (layout == Layout::kTHD && limits.padding && random.chance(0.25)) {
    lengths.tokens_q += random.between(0, 6);
    lengths.tokens_k += random.between(0, 6);
  }
  return lengths;
}

/// A bound of the window: the diagonal itself, near it, anywhere, beyond every length, none.
inline int64_t random_bound(Random& random, const ProblemLimits& limits) {
  return random.one_of(
      std::array<int64_t, 6>{0, 1, 7, random.between(2, limits.length), limits.length + 5, -1});
}

/// One option of each kind that a problem can have; `index` in [0, kOptions).
inline constexpr int64_t kOptions = 9;
inline void add_option(Problem& p, int64_t index, Random& random, const ProblemLimits& limits) {
  switch (index) {
    case 0:
      p.window_left = random_bound(random, limits);
      p.window_right = random_bound(random, limits);
      break;
    case 1:
      p.prefix.clear();
      for (size_t i = 0; i < p.lengths.sequences.size(); ++i) {
        p.prefix.push_back(random.chance(0.3) ? 0 : random.between(1, limits.length + 5));
      }
      break;
    case 2: p.chunk = random.between(1, limits.length + 5); break;
    case 3: p.softcap = random.one_of(std::array{0.7, 5.0, 30.0}); break;
    case 4: p.alibi = Alibi::kDefault; break;
    case 5:
      p.bias = random.one_of(std::array{Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S});
      break;
    case 6: p.sink = random.chance(0.3) ? Sink::kOffByOne : Sink::kLearnable; break;
    case 7:
      p.dropout = random.one_of(std::array{0.1, 0.25, 0.5, 0.9});
      p.dropout_seed = random.bits();
      break;
    default: p.max_logit = true;
  }
}

/// Pages of keys and values, every sequence in whole ones.
inline void add_pages(Problem& p, Random& random) {
  p.page = random.one_of(std::array<int64_t, 4>{1, 3, 16, 50});
  p.lengths.tokens_k = 0;
  for (Sequence& s : p.lengths.sequences) {
    s.k_extent = (s.k_extent + p.page - 1) / p.page * p.page;
    s.k_offset = p.lengths.tokens_k;
    p.lengths.tokens_k += s.k_extent;
  }
}

/// A quarter of the problems have none, a third has one, the others some.
inline void add_options(Problem& p, Random& random, const ProblemLimits& limits) {
  if (limits.pages && random.chance(0.5)) add_pages(p, random);
  if (!limits.options || random.chance(0.25)) return;
  p.deterministic = random.chance(0.1);
  if (random.chance(0.45)) return add_option(p, random.between(0, kOptions - 1), random, limits);
  for (int64_t index = 0; index < kOptions; ++index) {
    if (random.chance(0.35)) add_option(p, index, random, limits);
  }
}

/// A valid problem.
inline Problem random_problem(Random& random, const ProblemLimits& limits = {}) {
  Problem problem;
  problem.dtype = random.one_of(limits.dtypes);
  problem.heads_kv = random.between(1, limits.key_heads);
  problem.heads_q = problem.heads_kv * random.between(1, limits.group);
  problem.dim_qk = random.between(1, limits.dim);
  problem.dim_v = random.chance(0.5) ? problem.dim_qk : random.between(1, limits.dim);
  problem.mask = random.chance(0.7) ? MaskKind::kCausal : MaskKind::kNone;
  problem.align = random.chance(0.4) ? Align::kBottomRight : Align::kTopLeft;
  problem.layout =
      random.chance(0.7) ? Layout::kTHD : random.one_of(std::array{Layout::kBSHD, Layout::kSBHD});
  problem.scale = 0.5;
  problem.lengths = random_lengths(random, limits, problem.layout);
  add_options(problem, random, limits);
  Result<Problem> checked = validated(problem);
  if (!checked.ok()) std::abort();  // a defect of this generator
  return std::move(checked).value();
}

}  // namespace longspan::testkit
