#include "providers/support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Tensor::Tensor(const Shape& shape) : shape_(shape) {
  const int64_t seq = shape.batch == 0 ? 0 : shape.rows / shape.batch;
  view_ = {.data = nullptr,
           .dtype = shape.dtype,
           .batch = shape.batch,
           .seq = seq,
           .heads = shape.heads,
           .dim = shape.dim};
  const int64_t width = shape.dim + shape.gap;
  const bool tokens = shape.memory == Memory::kTokenMajor;
  view_.stride_head = tokens ? width : seq * width;
  view_.stride_seq = tokens ? shape.heads * width : width;
  view_.stride_batch = seq * shape.heads * width;
  const int64_t bytes = (shape.lead + shape.rows * shape.heads * width) * size_of(shape.dtype);
  storage_.assign(static_cast<size_t>(bytes / 8 + 1), ~uint64_t{0});
  view_.data = reinterpret_cast<std::byte*>(storage_.data()) + shape.lead * size_of(shape.dtype);
}

double Tensor::get(int64_t row, int64_t head, int64_t i) const {
  const int64_t at = view_.offset(row, head) + i;
  switch (view_.dtype) {
    case DType::kF64: return static_cast<const double*>(view_.data)[at];
    case DType::kF32: return static_cast<const float*>(view_.data)[at];
    case DType::kF16: return f16_to_float(static_cast<const uint16_t*>(view_.data)[at]);
    case DType::kBF16: return bf16_to_float(static_cast<const uint16_t*>(view_.data)[at]);
  }
  return kNan;
}

void Tensor::set(int64_t row, int64_t head, int64_t i, double value) {
  const int64_t at = view_.offset(row, head) + i;
  const float narrow = static_cast<float>(value);
  switch (view_.dtype) {
    case DType::kF64: static_cast<double*>(view_.data)[at] = value; break;
    case DType::kF32: static_cast<float*>(view_.data)[at] = narrow; break;
    case DType::kF16: static_cast<uint16_t*>(view_.data)[at] = float_to_f16(narrow); break;
    case DType::kBF16: static_cast<uint16_t*>(view_.data)[at] = float_to_bf16(narrow); break;
  }
}

void Tensor::fill(double value) {
  for (int64_t r = 0; r < shape_.rows; ++r) {
    for (int64_t h = 0; h < shape_.heads; ++h) {
      for (int64_t i = 0; i < shape_.dim; ++i) set(r, h, i, value);
    }
  }
}

void Tensor::fill_normal(std::mt19937_64& random, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  for (int64_t r = 0; r < shape_.rows; ++r) {
    for (int64_t h = 0; h < shape_.heads; ++h) {
      for (int64_t i = 0; i < shape_.dim; ++i) set(r, h, i, normal(random));
    }
  }
}

std::vector<double> Tensor::values() const {
  std::vector<double> result;
  result.reserve(static_cast<size_t>(shape_.rows * shape_.heads * shape_.dim));
  for (int64_t r = 0; r < shape_.rows; ++r) {
    for (int64_t h = 0; h < shape_.heads; ++h) {
      for (int64_t i = 0; i < shape_.dim; ++i) result.push_back(get(r, h, i));
    }
  }
  return result;
}

Tensor Tensor::copy(const Shape& shape) const {
  Tensor result(shape);
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      for (int64_t i = 0; i < shape.dim; ++i) result.set(r, h, i, get(r, h, i));
    }
  }
  return result;
}

std::string Case::text() const {
  std::string result = fmt::format(
      "{} heads {}/{} group {}+{} dim {}/{} rows {}/{} scale {} memory {} batch {} gap {}:",
      name(problem.dtype), problem.heads_q, problem.heads_kv, problem.group, problem.group_offset,
      problem.dim_qk, problem.dim_v, problem.capacity_q, problem.capacity_k, scale,
      static_cast<int>(memory), batch, gap);
  for (const PlacedTile& t : tiles) {
    result += fmt::format(" [q {}+{} k {}+{} band {}..{}]", t.q_row, t.tile.q.size(), t.k_row,
                          t.tile.k.size(), t.tile.band.lo, t.tile.band.hi);
  }
  return result;
}

namespace {

Tensor make(const Case& c, DType dtype, bool keys, int64_t dim) {
  return Tensor({.dtype = dtype,
                 .rows = keys ? c.problem.capacity_k : c.problem.capacity_q,
                 .heads = keys ? c.problem.heads_kv : c.problem.heads_q,
                 .dim = dim,
                 .memory = c.memory,
                 .batch = c.batch,
                 .gap = c.gap});
}

}  // namespace

Inputs make_inputs(const Case& c, uint64_t seed, double deviation) {
  std::mt19937_64 random(seed);
  const TileProblem& p = c.problem;
  Inputs inputs{make(c, p.dtype, false, p.dim_qk), make(c, p.dtype, true, p.dim_qk),
                make(c, p.dtype, true, p.dim_v), make(c, p.dtype, false, p.dim_v)};
  inputs.q.fill_normal(random, deviation);
  inputs.k.fill_normal(random, deviation);
  inputs.v.fill_normal(random);
  inputs.dout.fill_normal(random);
  return inputs;
}

Carry empty_carry(const Case& c, DType dtype) {
  Carry carry{make(c, dtype, false, c.problem.dim_v), make(c, dtype, false, 1)};
  carry.o.fill(0);
  carry.lse.fill(-kInfinity);
  return carry;
}

Gradients zero_gradients(const Case& c, DType dtype) {
  Gradients gradients{make(c, dtype, false, c.problem.dim_qk),
                      make(c, dtype, true, c.problem.dim_qk),
                      make(c, dtype, true, c.problem.dim_v)};
  gradients.dq.fill(0);
  gradients.dk.fill(0);
  gradients.dv.fill(0);
  return gradients;
}

void forward(const Provider& provider, const Device& device, const Case& c, const Inputs& inputs,
             std::span<const PlacedTile> tiles, Carry& carry) {
  TileProblem problem = c.problem;
  problem.direction = Direction::kForward;
  const ForwardTiles call{.q = inputs.q.view(),
                          .k = inputs.k.view(),
                          .v = inputs.v.view(),
                          .o = carry.o.view(),
                          .lse = carry.lse.view(),
                          .tiles = tiles,
                          .scale = c.scale,
                          .terms = c.terms,
                          .max_logit = c.max_logit};
  const Status status = compute(provider, device, problem, call);
  ASSERT_TRUE(status.ok()) << status.error().text();
}

void backward(const Provider& provider, const Device& device, const Case& c, const Inputs& inputs,
              std::span<const PlacedTile> tiles, const Tensor& lse, const Tensor& delta,
              Gradients& gradients) {
  TileProblem problem = c.problem;
  problem.direction = Direction::kBackward;
  const BackwardTiles call{.q = inputs.q.view(),
                           .k = inputs.k.view(),
                           .v = inputs.v.view(),
                           .dout = inputs.dout.view(),
                           .lse = lse.view(),
                           .delta = delta.view(),
                           .dq = gradients.dq.view(),
                           .dk = gradients.dk.view(),
                           .dv = gradients.dv.view(),
                           .tiles = tiles,
                           .scale = c.scale,
                           .terms = c.terms,
                           .dbias = c.dbias};
  const Status status = compute(provider, device, problem, call);
  ASSERT_TRUE(status.ok()) << status.error().text();
}

Tensor make_delta(const Case& c, const Inputs& inputs, const Tensor& o, DType dtype) {
  Tensor delta = make(c, dtype, false, 1);
  for (int64_t r = 0; r < c.problem.capacity_q; ++r) {
    for (int64_t h = 0; h < c.problem.heads_q; ++h) {
      double sum = 0;
      for (int64_t i = 0; i < c.problem.dim_v; ++i)
        sum += inputs.dout.get(r, h, i) * o.get(r, h, i);
      delta.set(r, h, 0, sum);
    }
  }
  return delta;
}

double relative_rms(const std::vector<double>& values, const std::vector<double>& reference) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return kInfinity;
    error += (values[i] - reference[i]) * (values[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  if (values.empty()) return 0;
  const double count = static_cast<double>(values.size());
  const double rms = std::sqrt(norm / count);
  return std::sqrt(error / count) / (rms < 1e-6 ? 1 : rms);
}

double lse_error(const std::vector<double>& values, const std::vector<double>& reference) {
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return kInfinity;
    if ((values[i] == -kInfinity) != (reference[i] == -kInfinity)) return kInfinity;
    if (values[i] == -kInfinity) continue;
    worst =
        std::max(worst, std::abs(values[i] - reference[i]) / std::max(1.0, std::abs(reference[i])));
  }
  return worst;
}

std::vector<double> rounded(const std::vector<double>& values, DType dtype) {
  Tensor tensor({.dtype = dtype, .rows = static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), 0, 0, values[i]);
  return tensor.values();
}

Device device(int threads) { return cpu_device(threads); }

namespace {

const Provider& named(std::string_view name) {
  for (const Provider* provider : providers()) {
    if (provider->name() == name) return *provider;
  }
  return *providers().back();
}

}  // namespace

const Provider& tiled() { return named("cpu/tiled"); }
const Provider& reference() { return named("cpu/reference"); }

Bars bars(const Provider& provider, DType dtype) {
  if (&provider == &reference()) return {1e-13, 1e-14};
  if (is_oracle(provider) || dtype == DType::kF64) return {1e-12, 1e-12};
  if (&provider == &tiled()) return {2e-6, 1e-5};
  return {dtype == DType::kF16 ? 6e-4 : dtype == DType::kBF16 ? 4e-3 : 2e-6, 1e-4};
}

PlacedTile make_placed(int64_t q_row, int64_t nq, int64_t k_row, int64_t nk, Band band) {
  return {.tile = {.sequence = 0, .q = {100, 100 + nq, 1}, .k = {7, 7 + 2 * nk, 2}, .band = band},
          .q_row = q_row,
          .k_row = k_row};
}

Outcome run(const Provider& provider, const Case& c, const Inputs& in, const Device& device) {
  return run(provider, c, in, device, accumulator(c.problem.dtype));
}

Outcome run(const Provider& provider, const Case& c, const Inputs& in, const Device& device,
            DType wide) {
  Outcome r{empty_carry(c, wide), zero_gradients(c, wide)};
  forward(provider, device, c, in, c.tiles, r.carry);
  const Tensor delta = make_delta(c, in, r.carry.o, wide);
  backward(provider, device, c, in, c.tiles, r.carry.lse, delta, r.gradients);
  return r;
}

}  // namespace longspan::testing
