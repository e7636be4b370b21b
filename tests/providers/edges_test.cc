// Rows without keys, poisoned memory, extreme logits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "providers/lane.h"
#include "providers/support.h"

namespace longspan::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool finite(const Tensor& t) {
  for (const double value : t.values()) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

class EveryProvider : public ::testing::TestWithParam<const Provider*> {
 protected:
  const Provider& provider() const { return *GetParam(); }
  const Device device_ = lane_device(2);
  const Device host_ = device(2);  // of the reference
};

INSTANTIATE_TEST_SUITE_P(Lane, EveryProvider, ::testing::ValuesIn(lane_providers()), label);

TEST_P(EveryProvider, RowsOutsideTilesAreNeitherReadNorWritten) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    Case c = one_tile(300, 280, {}, dtype);
    if (!offered(provider(), device_, c.problem)) continue;
    c.tiles = {make_placed(20, 150, 30, 140, {-kUnbounded, 0}), make_placed(200, 7, 190, 70, {})};
    const auto in_tile = [&](int64_t row, bool keys) {
      for (const PlacedTile& t : c.tiles) {
        const int64_t first = keys ? t.k_row : t.q_row;
        const int64_t count = keys ? t.tile.k.size() : t.tile.q.size();
        if (row >= first && row < first + count) return true;
      }
      return false;
    };
    Inputs in = make_inputs(c, 1);
    Outcome r{empty_carry(c, accumulator(dtype)), zero_gradients(c, accumulator(dtype))};
    Tensor delta = make_delta(c, in, r.carry.o, accumulator(dtype));
    const auto poison = [&](Tensor& t, bool keys) {
      for (int64_t row = 0; row < t.shape().rows; ++row) {
        if (in_tile(row, keys)) continue;
        for (int64_t h = 0; h < t.shape().heads; ++h) {
          for (int64_t i = 0; i < t.shape().dim; ++i) t.set(row, h, i, NAN);
        }
      }
    };
    const auto poisoned = [&](const Tensor& t, bool keys) {
      for (int64_t row = 0; row < t.shape().rows; ++row) {
        for (int64_t h = 0; h < t.shape().heads; ++h) {
          for (int64_t i = 0; i < t.shape().dim; ++i) {
            ASSERT_EQ(std::isnan(t.get(row, h, i)), !in_tile(row, keys)) << "row " << row;
          }
        }
      }
    };
    for (Tensor* t : {&in.q, &in.dout, &r.carry.o, &r.carry.lse, &delta, &r.gradients.dq}) {
      poison(*t, false);
    }
    for (Tensor* t : {&in.k, &in.v, &r.gradients.dk, &r.gradients.dv}) poison(*t, true);
    forward(provider(), device_, c, in, c.tiles, r.carry);
    backward(provider(), device_, c, in, c.tiles, r.carry.lse, delta, r.gradients);
    for (const Tensor* t : {&r.carry.o, &r.carry.lse, &r.gradients.dq}) poisoned(*t, false);
    for (const Tensor* t : {&r.gradients.dk, &r.gradients.dv}) poisoned(*t, true);
  }
}

TEST_P(EveryProvider, RowsThatSeeNoKeyKeepTheCarry) {
  // Queries 0..3 and 150.. see nothing.
  Case c = one_tile(170, 200, {-kUnbounded, -4});
  if (!offered(provider(), device_, c.problem)) return;
  c.tiles = {make_placed(0, 150, 0, 200, {-kUnbounded, -4}), make_placed(150, 20, 0, 200, {5, 2})};
  const Inputs in = make_inputs(c, 2);
  Outcome r{empty_carry(c, DType::kF32), zero_gradients(c, DType::kF32)};
  std::mt19937_64 random(3);
  r.carry.o.fill_normal(random);
  r.carry.lse.fill_normal(random);
  const Carry before{r.carry.o.copy(r.carry.o.shape()), r.carry.lse.copy(r.carry.lse.shape())};
  forward(provider(), device_, c, in, c.tiles, r.carry);
  for (int64_t row = 0; row < 170; ++row) {
    const bool empty = row < 4 || row >= 150;
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(before.lse.get(row, h, 0) == r.carry.lse.get(row, h, 0), empty) << row;
      for (int64_t i = 0; i < 12; ++i) {
        EXPECT_EQ(before.o.get(row, h, i) == r.carry.o.get(row, h, i), empty) << row;
      }
    }
  }
}

TEST_P(EveryProvider, MaskedRowsOfBottomRightCausal) {
  const Case c = one_tile(8, 4, {-kUnbounded, 4 - 8});
  if (!offered(provider(), device_, c.problem)) return;
  const Outcome r = run(provider(), c, make_inputs(c, 4), device_);
  EXPECT_TRUE(finite(r.carry.o));
  EXPECT_TRUE(finite(r.gradients.dq));
  EXPECT_TRUE(finite(r.gradients.dk));
  EXPECT_TRUE(finite(r.gradients.dv));
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(r.carry.lse.get(row, h, 0) == -kInfinity, row < 4);
      for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(r.carry.o.get(row, h, i) == 0, row < 4);
      for (int64_t i = 0; i < 20; ++i) EXPECT_TRUE(row >= 4 || r.gradients.dq.get(row, h, i) == 0);
    }
  }
}

TEST_P(EveryProvider, AllLogitsFarBelowZero) {
  Case c = one_tile(70, 90, {-kUnbounded, 0});
  if (!offered(provider(), device_, c.problem)) return;
  Inputs in = make_inputs(c, 5);
  in.q.fill(-300);
  for (int64_t j = 0; j < 90; ++j) {
    for (int64_t i = 0; i < 20; ++i) in.k.set(j, 0, i, 40 + 0.001 * static_cast<double>(j % 7));
  }
  const Outcome r = run(provider(), c, in, device_);  // logits near -5.4e4
  EXPECT_TRUE(finite(r.carry.o));
  EXPECT_TRUE(finite(r.gradients.dq));
  EXPECT_TRUE(finite(r.gradients.dk));
  EXPECT_TRUE(finite(r.gradients.dv));
  for (const double lse : r.carry.lse.values()) EXPECT_LT(lse, -5e4);
  Carry exact = empty_carry(c, DType::kF64);
  forward(reference(), host_, c, in, c.tiles, exact);
  EXPECT_LT(lse_error(r.carry.lse.values(), exact.lse.values()), 1e-5);
  EXPECT_LT(relative_rms(r.carry.o.values(), exact.o.values()), 1e-2);  // an ulp of the logit: 4e-3
}

TEST_P(EveryProvider, CarriesMoreThanAHundredApart) {
  Case c = one_tile(60, 120, {});
  if (!offered(provider(), device_, c.problem)) return;
  Inputs in = make_inputs(c, 6);
  in.q.fill(3);
  for (int64_t j = 0; j < 120; ++j) {  // logits of the first half are about 250 larger
    for (int64_t i = 0; i < 20; ++i) in.k.set(j, 0, i, (j < 60 ? 19 : 0) + in.k.get(j, 0, i) / 50);
  }
  const PlacedTile parts[] = {make_placed(0, 60, 0, 60, {}), make_placed(0, 60, 60, 60, {})};
  Carry exact = empty_carry(c, DType::kF64);
  forward(reference(), host_, c, in, c.tiles, exact);
  for (const int first : {0, 1}) {
    Carry carry = empty_carry(c, DType::kF32);
    forward(provider(), device_, c, in, {&parts[first], 1}, carry);
    forward(provider(), device_, c, in, {&parts[1 - first], 1}, carry);
    EXPECT_LT(lse_error(carry.lse.values(), exact.lse.values()), 1e-5);
    EXPECT_LT(relative_rms(carry.o.values(), exact.o.values()), 2e-4);
  }
}

TEST_P(EveryProvider, LargeRandomLogits) {
  for (const double size : {1e3, 1e4, 1e5}) {
    Case c = one_tile(200, 150, {-kUnbounded, 20});
    if (!offered(provider(), device_, c.problem)) continue;
    c.scale = size / std::sqrt(20.0);
    const Inputs in = make_inputs(c, 7);
    const Outcome r = run(provider(), c, in, device_);
    Carry exact = empty_carry(c, DType::kF64);
    forward(reference(), host_, c, in, c.tiles, exact);
    EXPECT_LT(lse_error(r.carry.lse.values(), exact.lse.values()), 1e-5) << size;
    EXPECT_LT(relative_rms(r.carry.o.values(), exact.o.values()), 4 * size * 0x1p-23) << size;
    EXPECT_TRUE(finite(r.gradients.dq));
    EXPECT_TRUE(finite(r.gradients.dk));
    EXPECT_TRUE(finite(r.gradients.dv));
  }
}

TEST_P(EveryProvider, NanInARowStaysVisible) {
  const Case c = one_tile(40, 40, {-kUnbounded, 0});
  if (!offered(provider(), device_, c.problem)) return;
  Inputs in = make_inputs(c, 8);
  in.q.set(11, 1, 3, NAN);
  Carry carry = empty_carry(c, DType::kF32);
  forward(provider(), device_, c, in, c.tiles, carry);
  for (int64_t row = 0; row < 40; ++row) {
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(std::isnan(carry.o.get(row, h, 0)), row == 11 && h == 1) << row;
    }
  }
}

TEST_P(EveryProvider, GradientsAreAdded) {
  const Case c = one_tile(50, 60, {});
  if (!offered(provider(), device_, c.problem)) return;
  const Inputs in = make_inputs(c, 9);
  Outcome once = run(provider(), c, in, device_);
  const Tensor delta = make_delta(c, in, once.carry.o, DType::kF32);
  const std::vector<double> first = once.gradients.dk.values();
  backward(provider(), device_, c, in, c.tiles, once.carry.lse, delta, once.gradients);
  const std::vector<double> twice = once.gradients.dk.values();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(twice[i], 2 * first[i], 1e-6);
}

TEST_P(EveryProvider, NoTilesNoRows) {
  Case c = one_tile(0, 0, {});
  if (!offered(provider(), device_, c.problem)) return;
  run(provider(), c, make_inputs(c, 1), device_);
  c = one_tile(5, 0, {});
  const Outcome r = run(provider(), c, make_inputs(c, 1), device_);
  EXPECT_EQ(r.carry.lse.get(4, 1, 0), -kInfinity);
}

}  // namespace
}  // namespace longspan::testing
