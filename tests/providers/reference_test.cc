// cpu/reference against a dense formulation in long double and against finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "providers/support.h"

namespace longspan::testing {
namespace {

struct Dense {
  std::vector<double> o, lse, dq, dk, dv;
};

/// Materialises the matrix of weights: how often query row r sees key row j.
std::vector<int> visits(const Case& c) {
  const int64_t nk = c.problem.capacity_k;
  std::vector<int> result(static_cast<size_t>(c.problem.capacity_q * nk));
  for (const PlacedTile& t : c.tiles) {
    for (int64_t i = 0; i < t.tile.q.size(); ++i) {
      for (int64_t j = 0; j < t.tile.k.size(); ++j) {
        if (t.tile.band.sees(i, j)) ++result[static_cast<size_t>((t.q_row + i) * nk + t.k_row + j)];
      }
    }
  }
  return result;
}

long double dot(const Tensor& a, int64_t row_a, int64_t head_a, const Tensor& b, int64_t row_b,
                int64_t head_b) {
  long double sum = 0;
  for (int64_t i = 0; i < a.shape().dim; ++i) {
    sum += static_cast<long double>(a.get(row_a, head_a, i)) * b.get(row_b, head_b, i);
  }
  return sum;
}

class DenseRow {
 public:
  DenseRow(const Case& c, const Inputs& in, const std::vector<int>& seen, Dense& out)
      : c_(c), in_(in), seen_(seen), out_(out) {}

  void run(int64_t row, int64_t head) {
    const int64_t nk = c_.problem.capacity_k;
    const int64_t kv = (head + c_.problem.group_offset) / c_.problem.group;
    std::vector<long double> p(static_cast<size_t>(nk));
    long double sum = 0;
    for (int64_t j = 0; j < nk; ++j) {
      const long double s = c_.scale * dot(in_.q, row, head, in_.k, j, kv);
      p[static_cast<size_t>(j)] = seen_[static_cast<size_t>(row * nk + j)] * std::exp(s);
      sum += p[static_cast<size_t>(j)];
    }
    const size_t at = static_cast<size_t>(row * c_.problem.heads_q + head);
    out_.lse[at] = static_cast<double>(std::log(sum));
    if (sum == 0) return;
    long double delta = 0;
    for (int64_t j = 0; j < nk; ++j) {
      p[static_cast<size_t>(j)] /= sum;
      delta += p[static_cast<size_t>(j)] * dot(in_.dout, row, head, in_.v, j, kv);
    }
    for (int64_t j = 0; j < nk; ++j) pair(row, head, j, kv, p[static_cast<size_t>(j)], delta);
  }

 private:
  void pair(int64_t row, int64_t head, int64_t j, int64_t kv, long double p, long double delta) {
    const int64_t d = c_.problem.dim_qk;
    const int64_t dv = c_.problem.dim_v;
    const size_t q = static_cast<size_t>(row * c_.problem.heads_q + head);
    const size_t k = static_cast<size_t>(j * c_.problem.heads_kv + kv);
    const long double ds = c_.scale * p * (dot(in_.dout, row, head, in_.v, j, kv) - delta);
    for (int64_t i = 0; i < dv; ++i) {
      out_.o[q * dv + i] += static_cast<double>(p * in_.v.get(j, kv, i));
      out_.dv[k * dv + i] += static_cast<double>(p * in_.dout.get(row, head, i));
    }
    for (int64_t i = 0; i < d; ++i) {
      out_.dq[q * d + i] += static_cast<double>(ds * in_.k.get(j, kv, i));
      out_.dk[k * d + i] += static_cast<double>(ds * in_.q.get(row, head, i));
    }
  }

  const Case& c_;
  const Inputs& in_;
  const std::vector<int>& seen_;
  Dense& out_;
};

Dense dense(const Case& c, const Inputs& in) {
  const TileProblem& p = c.problem;
  const size_t q = static_cast<size_t>(p.capacity_q * p.heads_q);
  const size_t k = static_cast<size_t>(p.capacity_k * p.heads_kv);
  Dense out;
  out.o.resize(q * p.dim_v);
  out.lse.resize(q);
  out.dq.resize(q * p.dim_qk);
  out.dk.resize(k * p.dim_qk);
  out.dv.resize(k * p.dim_v);
  const std::vector<int> seen = visits(c);
  DenseRow row(c, in, seen, out);
  for (int64_t r = 0; r < p.capacity_q; ++r) {
    for (int64_t h = 0; h < p.heads_q; ++h) row.run(r, h);
  }
  return out;
}

TEST(Reference, EqualsDenseFormulation) {
  std::mt19937_64 random(1);
  const Device cpu = device(2);
  for (int i = 0; i < 40; ++i) {
    const Case c = small_case(random);
    const Inputs in = make_inputs(c, 100 + i);
    const Dense expected = dense(c, in);
    Carry carry = empty_carry(c, DType::kF64);
    forward(reference(), cpu, c, in, c.tiles, carry);
    EXPECT_LT(relative_rms(carry.o.values(), expected.o), 1e-14) << c.text();
    EXPECT_LT(lse_error(carry.lse.values(), expected.lse), 1e-14) << c.text();
    Gradients gradients = zero_gradients(c, DType::kF64);
    const Tensor delta = make_delta(c, in, carry.o, DType::kF64);
    backward(reference(), cpu, c, in, c.tiles, carry.lse, delta, gradients);
    EXPECT_LT(relative_rms(gradients.dq.values(), expected.dq), 2e-14) << c.text();
    EXPECT_LT(relative_rms(gradients.dk.values(), expected.dk), 2e-14) << c.text();
    EXPECT_LT(relative_rms(gradients.dv.values(), expected.dv), 2e-14) << c.text();
  }
}

double loss(const Case& c, const Inputs& in, const Device& cpu) {
  Carry carry = empty_carry(c, DType::kF64);
  forward(reference(), cpu, c, in, c.tiles, carry);
  double sum = 0;
  const std::vector<double> o = carry.o.values();
  const std::vector<double> dout = in.dout.values();
  for (size_t i = 0; i < o.size(); ++i) sum += o[i] * dout[i];
  return sum;
}

/// Compares every element's gradient with a central difference.
void check_differences(const Case& c, Inputs& in, Tensor& input, const Tensor& gradient,
                       const Device& cpu) {
  constexpr double kStep = 1e-5;
  for (int64_t r = 0; r < input.shape().rows; ++r) {
    for (int64_t h = 0; h < input.shape().heads; ++h) {
      for (int64_t i = 0; i < input.shape().dim; ++i) {
        const double value = input.get(r, h, i);
        input.set(r, h, i, value + kStep);
        const double above = loss(c, in, cpu);
        input.set(r, h, i, value - kStep);
        const double below = loss(c, in, cpu);
        input.set(r, h, i, value);
        ASSERT_NEAR(gradient.get(r, h, i), (above - below) / (2 * kStep), 1e-8) << c.text();
      }
    }
  }
}

TEST(Reference, GradientsAreFiniteDifferences) {
  const Device cpu = device(1);
  std::mt19937_64 random(2);
  for (int i = 0; i < 6; ++i) {
    Case c;
    c.problem = {.dtype = DType::kF64,
                 .heads_q = 3,
                 .heads_kv = 2,
                 .group = 2,
                 .group_offset = i % 2,
                 .dim_qk = 3,
                 .dim_v = 2,
                 .capacity_q = 9,
                 .capacity_k = 8};
    c.scale = 0.7;
    const Band bands[] = {{-kUnbounded, 0}, {}, {-2, 1}};
    c.tiles = {make_placed(0, 5, 0, 6, bands[i % 3]), make_placed(4, 5, 2, 6, {-kUnbounded, 1})};
    Inputs in = make_inputs(c, 7 + i);
    Carry carry = empty_carry(c, DType::kF64);
    forward(reference(), cpu, c, in, c.tiles, carry);
    Gradients gradients = zero_gradients(c, DType::kF64);
    backward(reference(), cpu, c, in, c.tiles, carry.lse, make_delta(c, in, carry.o, DType::kF64),
             gradients);
    check_differences(c, in, in.q, gradients.dq, cpu);
    check_differences(c, in, in.k, gradients.dk, cpu);
    check_differences(c, in, in.v, gradients.dv, cpu);
  }
}

TEST(Reference, NarrowViewsHoldTheRoundedResult) {
  std::mt19937_64 random(3);
  const Device cpu = device(2);
  Case c = small_case(random);
  c.problem.dtype = DType::kBF16;
  c.tiles.resize(1);
  const Inputs in = make_inputs(c, 5);
  Carry wide = empty_carry(c, DType::kF64);
  Carry narrow = empty_carry(c, DType::kF32);
  forward(reference(), cpu, c, in, c.tiles, wide);
  forward(reference(), cpu, c, in, c.tiles, narrow);
  EXPECT_EQ(narrow.o.values(), rounded(wide.o.values(), DType::kF32));
  EXPECT_EQ(narrow.lse.values(), rounded(wide.lse.values(), DType::kF32));
}

}  // namespace
}  // namespace longspan::testing
