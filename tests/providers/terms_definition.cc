// The definition of attention with all score terms, pair by pair.
#include <algorithm>
#include <cmath>
#include <limits>

#include "providers/terms_scene.h"

namespace longspan::testing {
namespace {

struct Pair {
  ScoreIndex at;
  int64_t key_row = 0;
  double product = 0;  // scale q.k
  double before = 0;   // the score that the callback takes in
  double score = 0;
  double keep = 1;
};

/// A number and the sum of the magnitudes of what it was made from.
struct Size {
  double value = 0;
  double magnitude = 0;

  void add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
  void multiply(double factor) {
    value *= factor;
    magnitude *= std::abs(factor);
  }
};

double dot(const Tensor& a, int64_t row_a, int64_t head_a, const Tensor& b, int64_t row_b,
           int64_t head_b) {
  double sum = 0;
  for (int64_t i = 0; i < a.shape().dim; ++i)
    sum += a.get(row_a, head_a, i) * b.get(row_b, head_b, i);
  return sum;
}

class Definer {
 public:
  explicit Definer(const Scene& scene) : scene_(scene), p_(scene.c.problem) {
    const auto sized = [](int64_t count) {
      return std::vector<double>(static_cast<size_t>(count));
    };
    out_.o = sized(p_.capacity_q * p_.heads_q * p_.dim_v);
    out_.dq = sized(p_.capacity_q * p_.heads_q * p_.dim_qk);
    out_.dk = sized(p_.capacity_k * p_.heads_kv * p_.dim_qk);
    out_.dv = sized(p_.capacity_k * p_.heads_kv * p_.dim_v);
    const Tensor::Shape& bias = scene.bias.shape();
    out_.dbias = sized(bias.rows * bias.heads * bias.dim);
    out_.magnitudes = {out_.dq, out_.dk, out_.dbias};
    out_.max_logit.assign(static_cast<size_t>(p_.heads_q), -kInfinity);
  }

  Definition run() && {
    for (int64_t row = 0; row < p_.capacity_q; ++row) {
      for (int64_t head = 0; head < p_.heads_q; ++head) attend(row, head);
    }
    return std::move(out_);
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  int64_t key_head(int64_t head) const { return (head + p_.group_offset) / p_.group; }

  void attend(int64_t row, int64_t head) {
    pairs_.clear();
    for (const PlacedTile& t : scene_.c.tiles) {
      const int64_t i = row - t.q_row;
      if (i < 0 || i >= t.tile.q.size()) continue;
      for (int64_t j = 0; j < t.tile.k.size(); ++j) {
        if (t.tile.band.lo <= j - i && j - i <= t.tile.band.hi) add_pair(t, i, j, head);
      }
    }
    if (pairs_.empty()) {
      out_.lse.push_back(-kInfinity);
      return;
    }
    double max = -kInfinity;
    for (const Pair& pair : pairs_) max = std::max(max, pair.score);
    double sum = 0;
    for (const Pair& pair : pairs_) sum += std::exp(pair.score - max);
    double& largest = out_.max_logit[static_cast<size_t>(head)];
    largest = std::max(largest, max);
    out_.lse.push_back(max + std::log(sum));
    output(row, head);
    gradients(row, head);
  }

  void add_pair(const PlacedTile& t, int64_t i, int64_t j, int64_t head) {
    const ScoreTerms& terms = scene_.c.terms;
    const ScoreIndex at{t.tile.sequence, terms.head_begin + head,
                        t.tile.q.begin + i * t.tile.q.stride, t.tile.k.begin + j * t.tile.k.stride};
    Pair pair{.at = at, .key_row = t.k_row + j};
    pair.product = scene_.c.scale *
                   dot(scene_.in.q, t.q_row + i, head, scene_.in.k, pair.key_row, key_head(head));
    double s = pair.product;
    if (p_.features.softcap) s = terms.softcap * std::tanh(s / terms.softcap);
    if (p_.features.alibi) {
      const double distance = std::abs(static_cast<double>(at.q + t.shift - at.k));
      s -= scene_.slopes.get(0, at.head, 0) * distance;
    }
    if (p_.features.bias != Bias::kNone) {
      s += scene_.bias.get(bias_row(at), bias_head(at), at.k);
    }
    pair.before = s;
    if (scene_.modification && scene_.modification->visible) {
      if (!scene_.modification->visible(at)) return;
    }
    if (scene_.modification && scene_.modification->score) s = scene_.modification->score(s, at);
    if (s == -kInfinity) return;
    pair.score = s;
    if (p_.features.dropout) {
      pair.keep = terms.dropout.keeps(at) ? 1 / (1 - terms.dropout.probability) : 0;
    }
    pairs_.push_back(pair);
  }

  int64_t bias_row(const ScoreIndex& at) const {
    switch (p_.features.bias) {
      case Bias::kB1:
      case Bias::kBH: return at.sequence * (scene_.bias.shape().rows / 3) + at.q;
      case Bias::k11:
      case Bias::k1H: return at.q;
      default: return 0;
    }
  }
  int64_t bias_head(const ScoreIndex& at) const {
    return p_.features.bias == Bias::k1H || p_.features.bias == Bias::kBH ? at.head : 0;
  }

  static void add(std::vector<double>& to, const Tensor::Shape& shape, int64_t row, int64_t head,
                  int64_t i, double value) {
    to[static_cast<size_t>((row * shape.heads + head) * shape.dim + i)] += value;
  }

  void output(int64_t row, int64_t head) {
    for (const Pair& pair : pairs_) {
      const double weight = std::exp(pair.score - out_.lse.back()) * pair.keep;
      for (int64_t i = 0; i < p_.dim_v; ++i) {
        add(out_.o, scene_.in.dout.shape(), row, head, i,
            weight * scene_.in.v.get(pair.key_row, key_head(head), i));
      }
    }
  }

  /// Delta of a row and the sum of the magnitudes of its terms.
  Size delta_of(int64_t row, int64_t head) const {
    Size delta;
    for (int64_t i = 0; i < p_.dim_v; ++i) {
      delta.add(scene_.in.dout.get(row, head, i) *
                out_.o[static_cast<size_t>((row * p_.heads_q + head) * p_.dim_v + i)]);
    }
    return delta;
  }

  void gradients(int64_t row, int64_t head) {
    const Size delta = delta_of(row, head);
    for (const Pair& pair : pairs_) {
      const double p = std::exp(pair.score - out_.lse.back());
      Size dp;
      for (int64_t i = 0; i < p_.dim_v; ++i) {
        dp.add(pair.keep * scene_.in.dout.get(row, head, i) *
               scene_.in.v.get(pair.key_row, key_head(head), i));
      }
      Size ds{p * (dp.value - delta.value), p * (dp.magnitude + delta.magnitude)};
      if (scene_.modification && scene_.modification->score) {
        ds.multiply(scene_.modification->derivative(pair.before, pair.at));
      }
      if (p_.features.bias != Bias::kNone) {
        const Tensor::Shape& bias = scene_.bias.shape();
        add(out_.dbias, bias, bias_row(pair.at), bias_head(pair.at), pair.at.k, ds.value);
        add(out_.magnitudes.dbias, bias, bias_row(pair.at), bias_head(pair.at), pair.at.k,
            ds.magnitude);
      }
      if (p_.features.softcap) {
        ds.multiply(1 / std::pow(std::cosh(pair.product / scene_.c.terms.softcap), 2));
      }
      ds.multiply(scene_.c.scale);
      pair_gradients(row, head, pair, ds);
      for (int64_t i = 0; i < p_.dim_v; ++i) {
        add(out_.dv, scene_.in.v.shape(), pair.key_row, key_head(head), i,
            p * pair.keep * scene_.in.dout.get(row, head, i));
      }
    }
  }

  /// `ds` is the gradient of q.k.
  void pair_gradients(int64_t row, int64_t head, const Pair& pair, const Size& ds) {
    const Inputs& in = scene_.in;
    const int64_t kv = key_head(head);
    for (int64_t i = 0; i < p_.dim_qk; ++i) {
      const double q = in.q.get(row, head, i);
      const double k = in.k.get(pair.key_row, kv, i);
      add(out_.dq, in.q.shape(), row, head, i, ds.value * k);
      add(out_.dk, in.k.shape(), pair.key_row, kv, i, ds.value * q);
      add(out_.magnitudes.dq, in.q.shape(), row, head, i, ds.magnitude * std::abs(k));
      add(out_.magnitudes.dk, in.k.shape(), pair.key_row, kv, i, ds.magnitude * std::abs(q));
    }
  }

  const Scene& scene_;
  const TileProblem& p_;
  std::vector<Pair> pairs_;  // visible ones of the row at hand
  Definition out_;
};

}  // namespace

Definition define(const Scene& scene) { return Definer(scene).run(); }

}  // namespace longspan::testing
