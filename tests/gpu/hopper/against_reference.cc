#include "gpu/hopper/against_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "providers/cuda/reference.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

std::vector<bool> rows_of(const std::vector<PlacedTile>& tiles, bool keys, int64_t rows) {
  std::vector<bool> used(static_cast<size_t>(rows));
  for (const PlacedTile& t : tiles) {
    const int64_t first = keys ? t.k_row : t.q_row;
    const int64_t count = keys ? t.tile.k.size() : t.tile.q.size();
    for (int64_t i = 0; i < count; ++i) used[static_cast<size_t>(first + i)] = true;
  }
  return used;
}

/// The elements of the tiles' query rows. With `others_nan` fails where another one is a number.
std::vector<double> inside(const Case& c, const Tensor& t, bool others_nan) {
  std::vector<double> values;
  const auto used = rows_of(c.tiles, false, t.shape().rows);
  for (int64_t row = 0; row < t.shape().rows; ++row) {
    for (int64_t h = 0; h < t.shape().heads; ++h) {
      for (int64_t i = 0; i < t.shape().dim; ++i) {
        const double x = t.get(row, h, i);
        if (used[static_cast<size_t>(row)]) {
          values.push_back(x);
        } else if (others_nan) {
          EXPECT_TRUE(std::isnan(x)) << "row " << row << " was written";
        }
      }
    }
  }
  return values;
}

}  // namespace

Case make_case(int64_t rows_q, int64_t rows_k, int64_t dim_qk, int64_t dim_v, DType dtype) {
  Case c;
  c.problem = {.dtype = dtype,
               .heads_q = 4,
               .heads_kv = 2,
               .group = 2,
               .dim_qk = dim_qk,
               .dim_v = dim_v,
               .capacity_q = rows_q,
               .capacity_k = rows_k};
  c.scale = 1 / std::sqrt(static_cast<double>(dim_qk));
  return c;
}

Carry exact_of(const Case& given, const Inputs& in) {
  Case c = given;
  c.problem.features.whole = false;
  Carry exact = empty_carry(c, DType::kF64);
  forward(kCudaReference, lane_device(1), c, in, c.tiles, exact);
  return exact;
}

void expect_close(const Case& c, const Carry& value, const Carry& exact, double factor) {
  const bool whole = c.problem.features.whole;
  const Bars limit = bars(kHopper, c.problem.dtype);
  EXPECT_LT(relative_rms(inside(c, value.o, whole), inside(c, exact.o, false)),
            factor * limit.tensors)
      << (whole ? "whole o: " : "o: ") << c.text();
  EXPECT_LT(lse_error(inside(c, value.lse, whole), inside(c, exact.lse, false)), limit.lse)
      << (whole ? "whole: " : "") << c.text();
}

void check_merged(const Case& c, const Inputs& in, double factor) {
  Carry value = empty_carry(c, DType::kF32);
  forward(kHopper, lane_device(1), c, in, c.tiles, value);
  expect_close(c, value, exact_of(c, in), factor);
}

void check_whole(const Case& given, const Inputs& in, double factor) {
  Case c = given;
  c.problem.features.whole = true;
  Carry value{empty_carry(c, c.problem.dtype).o, empty_carry(c, DType::kF32).lse};
  value.o.fill(NAN);
  value.lse.fill(NAN);
  forward(kHopper, lane_device(1), c, in, c.tiles, value);
  expect_close(c, value, exact_of(c, in), factor);
}

void check_case(const Case& c, uint64_t seed, double factor) {
  const Inputs in = make_inputs(c, seed);
  check_merged(c, in, factor);
  check_whole(c, in, factor);
}

void poison_outside(const Case& c, Inputs& in) {
  const auto poison = [&](Tensor& t, bool keys) {
    const auto used = rows_of(c.tiles, keys, t.shape().rows);
    for (int64_t row = 0; row < t.shape().rows; ++row) {
      if (used[static_cast<size_t>(row)]) continue;
      for (int64_t h = 0; h < t.shape().heads; ++h) {
        for (int64_t i = 0; i < t.shape().dim; ++i) t.set(row, h, i, NAN);
      }
    }
  };
  poison(in.q, false);
  poison(in.k, true);
  poison(in.v, true);
  poison(in.dout, false);
}

}  // namespace longspan::testing
