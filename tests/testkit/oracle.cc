#include "testkit/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "numbers.h"
#include "progress.h"

namespace longspan::testkit {
namespace {

constexpr double kMostFlops = 4e8;

tool::Tensor packed(const Problem& problem, const char* name, double value) {
  tool::TensorSpec spec = tool::tensor_spec(problem, name);
  spec.dtype = DType::kF64;
  const int64_t rows = tool::whole_rows(problem, spec.side);
  tool::Tensor tensor = tool::make_tensor(spec, Layout::kTHD, 1, rows);
  std::fill_n(static_cast<double*>(tensor.view.data), rows * spec.heads * spec.dim, value);
  return tensor;
}

tool::Tensor widened(const Problem& problem, const char* name, const tool::Tensor& from) {
  tool::Tensor to = packed(problem, name, 0);
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

/// The mask, as the conventions word it.
bool visible(const Problem& problem, const Sequence& s, int64_t q, int64_t k) {
  if (problem.mask == MaskKind::kNone) return true;
  const int64_t shift = problem.align == Align::kBottomRight ? s.k_length - s.q_length : 0;
  return k <= q + shift;
}

class Definition {
 public:
  explicit Definition(const tool::Inputs& inputs)
      : problem_(inputs.problem),
        q_(widened(problem_, "q", inputs.q)),
        k_(widened(problem_, "k", inputs.k)),
        v_(widened(problem_, "v", inputs.v)),
        dout_(widened(problem_, "dout", inputs.dout)),
        out_{.o = packed(problem_, "o", 0),
             .lse = packed(problem_, "lse", -std::numeric_limits<double>::infinity()),
             .dq = packed(problem_, "dq", 0),
             .dk = packed(problem_, "dk", 0),
             .dv = packed(problem_, "dv", 0)} {}

  tool::Reference run() && {
    for (const Sequence& sequence : problem_.lengths.sequences) {
      for (int64_t q = 0; q < sequence.q_length; ++q) {
        for (int64_t head = 0; head < problem_.heads_q; ++head) row(sequence, q, head);
      }
    }
    return std::move(out_);
  }

 private:
  void row(const Sequence& s, int64_t q, int64_t head) {
    const int64_t key_head = head / (problem_.heads_q / problem_.heads_kv);
    const double* q_row = row_of(q_, s.q_offset + q, head);
    keys_.clear();
    weights_.clear();
    for (int64_t k = 0; k < s.k_length; ++k) {
      if (!visible(problem_, s, q, k)) continue;
      keys_.push_back(s.k_offset + k);
      weights_.push_back(problem_.scale *
                         dot(q_row, row_of(k_, keys_.back(), key_head), problem_.dim_qk));
    }
    if (keys_.empty()) return;
    const double largest = *std::max_element(weights_.begin(), weights_.end());
    double sum = 0;
    for (double& weight : weights_) sum += weight = std::exp(weight - largest);
    *row_of(out_.lse, s.q_offset + q, head) = largest + std::log(sum);
    double* o = row_of(out_.o, s.q_offset + q, head);
    for (size_t i = 0; i < keys_.size(); ++i) {
      weights_[i] /= sum;
      add_scaled(o, weights_[i], row_of(v_, keys_[i], key_head), problem_.dim_v);
    }
    gradients(s.q_offset + q, head, key_head);
  }

  void gradients(int64_t row, int64_t head, int64_t key_head) {
    const double* dout = row_of(dout_, row, head);
    const double delta = dot(dout, row_of(out_.o, row, head), problem_.dim_v);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const double dp = dot(dout, row_of(v_, keys_[i], key_head), problem_.dim_v);
      const double ds = problem_.scale * weights_[i] * (dp - delta);
      add_scaled(row_of(out_.dq, row, head), ds, row_of(k_, keys_[i], key_head), problem_.dim_qk);
      add_scaled(row_of(out_.dk, keys_[i], key_head), ds, row_of(q_, row, head), problem_.dim_qk);
      add_scaled(row_of(out_.dv, keys_[i], key_head), weights_[i], dout, problem_.dim_v);
    }
  }

  const Problem& problem_;
  tool::Tensor q_, k_, v_, dout_;
  tool::Reference out_;
  std::vector<int64_t> keys_;    // rows that the query sees
  std::vector<double> weights_;  // theirs
};

}  // namespace

tool::Reference attend_by_definition(const tool::Inputs& inputs) {
  return Definition(inputs).run();
}

Result<tool::Reference> make_reference(const tool::Inputs& inputs, const Device& device) {
  const Problem& problem = inputs.problem;
  const double flops = problem.flops(Direction::kForward) + problem.flops(Direction::kBackward);
  if (flops < kMostFlops) return attend_by_definition(inputs);
  tool::Progress progress(false);
  return tool::compute_reference(inputs, device, progress);
}

}  // namespace longspan::testkit
