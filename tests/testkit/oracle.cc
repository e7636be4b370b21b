#include "testkit/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "numbers.h"
#include "progress.h"
#include "testkit/oracle_terms.h"

namespace longspan::testkit {
namespace {

constexpr double kMostFlops = 4e8;
constexpr double kNone = -std::numeric_limits<double>::infinity();

void fill(const tool::Tensor& tensor, double value) {
  std::fill_n(static_cast<double*>(tensor.view.data), tensor.memory.size() / sizeof(double), value);
}

tool::Tensor packed(const Problem& problem, std::string_view name) {
  tool::TensorSpec spec = tool::tensor_spec(problem, name);
  spec.dtype = DType::kF64;
  tool::Tensor tensor =
      tool::make_tensor(spec, Layout::kTHD, 1, tool::whole_rows(problem, spec.side));
  fill(tensor, 0);
  return tensor;
}

tool::Reference empty_results(const Problem& problem, bool forward_only) {
  return tool::make_results(problem, forward_only, [&](std::string_view name) {
    tool::Tensor tensor = tool::has_rows(name) ? packed(problem, name)
                                               : tool::side_tensor(problem, name, DType::kF64);
    fill(tensor, name == "lse" || name == "max_logit" ? kNone : 0);
    return tensor;
  });
}

tool::Tensor widened(const Problem& problem, const char* name, const tool::Tensor& from) {
  tool::Tensor to = packed(problem, name);
  const TensorView& view = to.view;
  for (int64_t row = 0; row < view.rows(); ++row) {
    for (int64_t head = 0; head < view.heads; ++head) {
      for (int64_t i = 0; i < view.dim; ++i) {
        tool::store(view, row, head, i, tool::load(from.view, row, head, i));
      }
    }
  }
  return to;
}

double* row_of(const tool::Tensor& tensor, int64_t row, int64_t head) {
  return static_cast<double*>(tensor.view.data) + tensor.view.offset(row, head);
}

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double* to, double factor, const double* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// A key that the query sees: its row, the probability before dropout, and what it takes to
/// differentiate it.
struct Seen {
  ScoreIndex pair;
  int64_t row = 0;
  Score score;
  double probability = 0;
  double kept = 1;
};

struct Mode {
  bool forward_only = false;
  bool round_statistics = false;
};

class Definition {
 public:
  Definition(const tool::Inputs& inputs, Mode mode)
      : problem_(inputs.problem),
        mode_(mode),
        terms_(inputs),
        q_(widened(problem_, "q", inputs.q)),
        k_(widened(problem_, "k", inputs.k)),
        v_(widened(problem_, "v", inputs.v)),
        dout_(widened(problem_, "dout", inputs.dout)),
        out_(empty_results(problem_, mode.forward_only)) {}

  tool::Reference run() && {
    const auto count = static_cast<int64_t>(problem_.lengths.sequences.size());
    for (int64_t s = 0; s < count; ++s) {
      const int64_t queries = problem_.lengths.sequences[static_cast<size_t>(s)].q_length;
      for (int64_t q = 0; q < queries; ++q) {
        for (int64_t head = 0; head < problem_.heads_q; ++head) row({s, head, q, 0});
      }
    }
    return std::move(out_);
  }

 private:
  void row(ScoreIndex pair) {
    const Sequence& s = problem_.lengths.sequences[static_cast<size_t>(pair.sequence)];
    const int64_t row = s.q_offset + pair.q;
    const int64_t key_head = pair.head / (problem_.heads_q / problem_.heads_kv);
    seen_.clear();
    for (; pair.k < s.k_length; ++pair.k) {
      if (!terms_.visible(pair)) continue;
      const double* const key = row_of(k_, s.k_offset + pair.k, key_head);
      const Score score = terms_.score(pair, dot(row_of(q_, row, pair.head), key, problem_.dim_qk));
      if (score.value != kNone) seen_.push_back({pair, s.k_offset + pair.k, score, 0, 1});
    }
    normalise(row, pair.head);
    double* const o = row_of(out_.o, row, pair.head);
    for (Seen& key : seen_) {
      key.kept = terms_.kept(key.pair);
      add_scaled(o, key.probability * key.kept, row_of(v_, key.row, key_head), problem_.dim_v);
    }
    if (mode_.round_statistics) round_statistics(row, pair.head);
    if (!mode_.forward_only) gradients(row, pair.head, key_head);
  }

  /// Softmax with the sink's logit in the denominator.
  void normalise(int64_t row, int64_t head) {
    double largest = kNone;
    for (const Seen& key : seen_) largest = std::max(largest, key.score.value);
    if (problem_.max_logit) {
      double& most = *row_of(out_.max_logit, 0, head);
      most = std::max(most, largest);
    }
    const double sink = terms_.sink(head);
    largest = std::max(largest, sink);
    if (largest == kNone) return;
    double sum = std::exp(sink - largest);
    for (Seen& key : seen_) sum += key.probability = std::exp(key.score.value - largest);
    for (Seen& key : seen_) key.probability /= sum;
    *row_of(out_.lse, row, head) = largest + std::log(sum);
  }

  double rounded(double value) const {
    return accumulator(problem_.dtype) == DType::kF32 ? static_cast<float>(value) : value;
  }

  double roundoff() const { return accumulator(problem_.dtype) == DType::kF32 ? 0x1p-24 : 0x1p-53; }

  void round_statistics(int64_t row, int64_t head) {
    double* const o = row_of(out_.o, row, head);
    for (int64_t i = 0; i < problem_.dim_v; ++i) o[i] = rounded(o[i]);
    double& lse = *row_of(out_.lse, row, head);
    lse = rounded(lse);
    for (Seen& key : seen_) key.probability = std::exp(key.score.value - lse);
  }

  void gradients(int64_t row, int64_t head, int64_t key_head) {
    const double* dout = row_of(dout_, row, head);
    double delta = dot(dout, row_of(out_.o, row, head), problem_.dim_v);
    if (mode_.round_statistics) delta = rounded(delta);
    for (const Seen& key : seen_) {
      const double dp = key.kept * dot(dout, row_of(v_, key.row, key_head), problem_.dim_v);
      const double ds = key.probability * (dp - delta);
      const double d_product = ds * key.score.d_product;
      add_scaled(row_of(out_.dq, row, head), d_product, row_of(k_, key.row, key_head),
                 problem_.dim_qk);
      add_scaled(row_of(out_.dk, key.row, key_head), d_product, row_of(q_, row, head),
                 problem_.dim_qk);
      add_scaled(row_of(out_.dv, key.row, key_head), key.probability * key.kept, dout,
                 problem_.dim_v);
      if (problem_.bias == Bias::kNone) continue;
      row_of(out_.dbias, terms_.bias_row(key.pair), terms_.bias_head(key.pair))[key.pair.k] +=
          ds * key.score.d_bias;
    }
    // The sink's value is 0: of its dP - delta only delta is left.
    if (problem_.sink != Sink::kLearnable || terms_.sink(head) == kNone) return;
    const double weight = std::exp(terms_.sink(head) - *row_of(out_.lse, row, head));
    const double term = weight * delta;
    double& dsink = *row_of(out_.dsink, 0, head);
    dsink -= term;
    // Ranks round what they add up: at worst the roundings of all terms add up too.
    if (mode_.round_statistics) dsink += roundoff() * std::abs(term);
  }

  const Problem& problem_;
  Mode mode_;
  OracleTerms terms_;
  tool::Tensor q_, k_, v_, dout_;
  tool::Reference out_;
  std::vector<Seen> seen_;  // by the query at hand
};

}  // namespace

tool::Reference attend_by_definition(const tool::Inputs& inputs, bool forward_only) {
  return Definition(inputs, {.forward_only = forward_only}).run();
}

tool::Reference attend_with_rounded_statistics(const tool::Inputs& inputs) {
  return Definition(inputs, {.round_statistics = true}).run();
}

Result<tool::Reference> make_reference(const tool::Inputs& inputs, const Device& device,
                                       bool forward_only) {
  const Problem& problem = inputs.problem;
  const double flops = problem.flops(Direction::kForward) + problem.flops(Direction::kBackward);
  if (flops < kMostFlops) return attend_by_definition(inputs, forward_only);
  tool::Progress progress(false);
  return tool::compute_reference(inputs, device, progress, forward_only);
}

}  // namespace longspan::testkit
