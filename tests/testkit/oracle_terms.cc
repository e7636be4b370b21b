#include "testkit/oracle_terms.h"

#include <cmath>
#include <limits>

#include "numbers.h"

namespace longspan::testkit {
namespace {

int64_t floor_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(
      std::floor(static_cast<long double>(a) / static_cast<long double>(b)));
}

bool is_power_of_two(int64_t value) { return (value & (value - 1)) == 0; }

/// Terms 1, 1 + step, ... of the sequence that starts with and multiplies by 2^(-8 / of).
void append_terms(std::vector<double>& slopes, int64_t of, int64_t step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    slopes.push_back(
        std::pow(2.0, -8.0 * static_cast<double>(1 + i * step) / static_cast<double>(of)));
  }
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (uint32_t round = 0; round < 10; ++round) {
    const uint32_t k0 = key[0] + round * 0x9E3779B9u;  // golden ratio
    const uint32_t k1 = key[1] + round * 0xBB67AE85u;  // sqrt(3) - 1
    const uint64_t left = uint64_t{counter[0]} * 0xD2511F53u;
    const uint64_t right = uint64_t{counter[2]} * 0xCD9E8D57u;
    const auto high = [](uint64_t product) { return static_cast<uint32_t>(product >> 32); };
    const auto low = [](uint64_t product) { return static_cast<uint32_t>(product); };
    counter = {high(right) ^ counter[1] ^ k0, low(right), high(left) ^ counter[3] ^ k1, low(left)};
  }
  return counter;
}

std::vector<double> alibi_slopes(int64_t heads) {
  std::vector<double> slopes;
  if (is_power_of_two(heads)) {
    append_terms(slopes, heads, 1, heads);
    return slopes;
  }
  int64_t below = 1;
  while (2 * below < heads) below *= 2;
  append_terms(slopes, below, 1, below);
  append_terms(slopes, 2 * below, 2, heads - below);
  return slopes;
}

OracleTerms::OracleTerms(const tool::Inputs& inputs) : inputs_(inputs), problem_(inputs.problem) {
  const uint64_t seed = problem_.dropout_seed.value_or(0);
  key_ = {static_cast<uint32_t>(seed & 0xffffffffu), static_cast<uint32_t>(seed >> 32)};
  if (problem_.alibi == Alibi::kNone) return;
  slopes_ = alibi_slopes(problem_.heads_q);
  if (inputs.slopes.view.data == nullptr) return;
  for (size_t head = 0; head < slopes_.size(); ++head) {
    slopes_[head] = tool::load(inputs.slopes.view, 0, static_cast<int64_t>(head), 0);
  }
}

int64_t OracleTerms::shift(const ScoreIndex& pair) const {
  const Sequence& s = sequence(pair);
  return problem_.align == Align::kBottomRight ? s.k_length - s.q_length : 0;
}

bool OracleTerms::in_mask(const ScoreIndex& pair) const {
  const int64_t diagonal = pair.q + shift(pair);
  if (problem_.mask == MaskKind::kCausal && pair.k > diagonal) return false;
  if (problem_.window_left != -1 && pair.k < diagonal - problem_.window_left) return false;
  if (problem_.window_right != -1 && pair.k > diagonal + problem_.window_right) return false;
  if (problem_.chunk == 0) return true;
  return floor_of(diagonal, problem_.chunk) == floor_of(pair.k, problem_.chunk);
}

bool OracleTerms::visible(const ScoreIndex& pair) const {
  const bool in_prefix =
      !problem_.prefix.empty() && pair.k < problem_.prefix[static_cast<size_t>(pair.sequence)];
  if (!in_prefix && !in_mask(pair)) return false;
  if (!problem_.modification) return true;
  const auto& sees = problem_.modification.functions->visible;
  return !sees || sees(pair);
}

int64_t OracleTerms::bias_row(const ScoreIndex& pair) const {
  const TensorView& bias = inputs_.bias.view;
  return (bias.batch == 1 ? 0 : pair.sequence * bias.seq) + (bias.seq == 1 ? 0 : pair.q);
}

int64_t OracleTerms::bias_head(const ScoreIndex& pair) const {
  return inputs_.bias.view.heads == 1 ? 0 : pair.head;
}

Score OracleTerms::score(const ScoreIndex& pair, double product) const {
  Score s{.value = problem_.scale * product, .d_product = problem_.scale, .d_bias = 1};
  if (problem_.softcap != 0) {
    const double bent = std::tanh(s.value / problem_.softcap);
    s.value = problem_.softcap * bent;
    s.d_product *= 1 - bent * bent;
  }
  if (problem_.alibi != Alibi::kNone) {
    const auto distance = static_cast<double>(std::abs(pair.q + shift(pair) - pair.k));
    s.value -= slopes_[static_cast<size_t>(pair.head)] * distance;
  }
  if (problem_.bias != Bias::kNone) {
    s.value += tool::load(inputs_.bias.view, bias_row(pair), bias_head(pair), pair.k);
  }
  if (!problem_.modification || !problem_.modification.functions->score) return s;
  const Modification& modification = *problem_.modification.functions;
  const double slope = modification.derivative ? modification.derivative(s.value, pair)
                                               : std::numeric_limits<double>::quiet_NaN();
  return {.value = modification.score(s.value, pair),
          .d_product = slope * s.d_product,
          .d_bias = slope};
}

double OracleTerms::kept(const ScoreIndex& pair) const {
  if (problem_.dropout == 0) return 1;
  const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
  const std::array<uint32_t, 4> counter = {word(pair.sequence), word(pair.head), word(pair.q),
                                           word(pair.k)};
  const double uniform = static_cast<double>(philox(counter, key_)[0]) / 4294967296.0;
  return uniform < problem_.dropout ? 0 : 1 / (1 - problem_.dropout);
}

double OracleTerms::sink(int64_t head) const {
  if (problem_.sink == Sink::kNone) return -std::numeric_limits<double>::infinity();
  if (problem_.sink == Sink::kOffByOne) return 0;
  return tool::load(inputs_.sink.view, 0, head, 0);
}

}  // namespace longspan::testkit
