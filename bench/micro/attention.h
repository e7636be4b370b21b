// One sequence of a provider's forward and backward pass, and the arithmetic of paired rounds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "longspan/provider.h"

namespace longspan::bench {

inline std::vector<float> normal(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw(0, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

template <class Body>
double seconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What is measured: one f32 sequence of equally many query and key heads in one tile.
struct Shape {
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  Band band = {-kUnbounded, 0};
  Features features;
};

/// Its tensors, memory [row][head][dim], and the plans of cpu/tiled. Not copied: views point here.
class Attention {
 public:
  Attention(const Device& device, const Shape& shape) : shape_(shape) {
    const Provider& provider = **std::ranges::find(providers(), "cpu/tiled", &Provider::name);
    TileProblem problem = {.heads_q = shape.heads,
                           .heads_kv = shape.heads,
                           .dim_qk = shape.dim,
                           .dim_v = shape.dim,
                           .capacity_q = shape.rows,
                           .capacity_k = shape.rows,
                           .features = shape.features};
    forward_ = provider.prepare(problem, device).value();
    problem.direction = Direction::kBackward;
    backward_ = provider.prepare(problem, device).value();
    const size_t bytes = std::max(forward_->workspace_bytes(), backward_->workspace_bytes());
    scratch_.resize(bytes + kWorkspaceAlignment);
    void* aligned = scratch_.data();
    size_t space = scratch_.size();
    workspace_ = {std::align(kWorkspaceAlignment, bytes, aligned, space), bytes};
    tile_.tile = {
        .sequence = 0, .q = {0, shape.rows, 1}, .k = {0, shape.rows, 1}, .band = shape.band};
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// Run-time values of the features.
  ScoreTerms terms;
  TensorView max_logit, dbias;

  double flops(Direction direction) const {
    const double pairs = static_cast<double>(shape_.heads) * static_cast<double>(area(tile_.tile));
    const double dims = direction == Direction::kForward ? 2 : 5;
    return pairs * 2 * dims * static_cast<double>(shape_.dim);
  }

  bool run(Direction direction) {
    if (direction == Direction::kBackward) return backward_->backward(gradients(), workspace_).ok();
    std::fill(lse_.begin(), lse_.end(), -INFINITY);
    const ForwardTiles call = {.q = view(q_),
                               .k = view(k_),
                               .v = view(v_),
                               .o = view(o_),
                               .lse = statistics(lse_),
                               .tiles = {&tile_, 1},
                               .scale = scale(),
                               .terms = terms,
                               .max_logit = max_logit};
    return forward_->forward(call, workspace_).ok();
  }

 private:
  BackwardTiles gradients() {
    return {.q = view(q_),
            .k = view(k_),
            .v = view(v_),
            .dout = view(dout_),
            .lse = statistics(lse_),
            .delta = statistics(delta_),
            .dq = view(dq_),
            .dk = view(dk_),
            .dv = view(dv_),
            .tiles = {&tile_, 1},
            .scale = scale(),
            .terms = terms,
            .dbias = dbias};
  }
  int64_t count() const { return shape_.rows * shape_.heads * shape_.dim; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(shape_.dim)); }
  TensorView view(std::vector<float>& data) const {
    return packed_view(data.data(), DType::kF32, shape_.rows, shape_.heads, shape_.dim);
  }
  TensorView statistics(std::vector<float>& data) const {
    return packed_view(data.data(), DType::kF32, shape_.rows, shape_.heads, 1);
  }

  Shape shape_;
  std::shared_ptr<const Plan> forward_, backward_;
  std::vector<std::byte> scratch_;
  Workspace workspace_;
  PlacedTile tile_;
  std::vector<float> q_ = normal(count(), 3), k_ = normal(count(), 4), v_ = normal(count(), 5);
  std::vector<float> dout_ = normal(count(), 6), o_ = std::vector<float>(q_.size());
  std::vector<float> dq_ = o_, dk_ = o_, dv_ = o_;
  std::vector<float> lse_ = std::vector<float>(static_cast<size_t>(shape_.rows * shape_.heads));
  std::vector<float> delta_ = lse_;
};

}  // namespace longspan::bench
