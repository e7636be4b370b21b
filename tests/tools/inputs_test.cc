// Drawn inputs depend on the seed alone, and not on the layout.
#include "inputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "numbers.h"
#include "random.h"

namespace longspan::tool {
namespace {

Inputs drawn(const std::string& text, uint64_t seed) {
  auto source = resolve_source(text, "", seed);
  EXPECT_TRUE(source.ok());
  auto inputs = make_inputs(*source);
  EXPECT_TRUE(inputs.ok());
  return *std::move(inputs);
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.memory.size() == b.memory.size() &&
         std::memcmp(a.memory.data(), b.memory.data(), a.memory.size()) == 0;
}

TEST(Inputs, SameSeedSameBits) {
  const std::string text = "dtype=bf16 heads=4/2 dim=8 lengths=20,3";
  const Inputs a = drawn(text, 7);
  const Inputs b = drawn(text, 7);
  const Inputs c = drawn(text, 8);
  EXPECT_TRUE(equal(a.q, b.q) && equal(a.k, b.k) && equal(a.v, b.v) && equal(a.dout, b.dout));
  EXPECT_FALSE(equal(a.q, c.q));
  EXPECT_FALSE(equal(a.k, a.v));
}

TEST(Inputs, LayoutsHoldTheSameValues) {
  const std::string text = "dtype=f32 heads=2/1 dim=4 lengths=5,5,5 layout=";
  const Inputs bshd = drawn(text + "bshd", 1);
  const Inputs sbhd = drawn(text + "sbhd", 1);
  const Inputs thd = drawn(text + "thd", 1);
  EXPECT_TRUE(equal(bshd.q, thd.q));
  EXPECT_FALSE(equal(bshd.q, sbhd.q));
  for (int64_t row = 0; row < 15; ++row) {
    EXPECT_EQ(load(bshd.q.view, row, 1, 3), load(sbhd.q.view, row, 1, 3));
  }
}

TEST(Inputs, PaddingIsZero) {
  const Inputs inputs = drawn("dtype=f32 heads=1/1 dim=2 lengths=1,2 padded=3,3 tokens=8", 1);
  for (const int64_t row : {1, 2, 5, 6, 7}) EXPECT_EQ(load(inputs.q.view, row, 0, 1), 0);
  for (const int64_t row : {0, 3, 4}) EXPECT_NE(load(inputs.q.view, row, 0, 1), 0);
}

TEST(Inputs, ActualLengthsAreDrawnWithinTheCapacities) {
  const std::string text = "dtype=f32 heads=1/1 dim=2 lengths=9,0,40 kv_lengths=3,7,40 ";
  bool shorter = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Inputs inputs = drawn(text + "device_lengths=true", seed);
    EXPECT_EQ(inputs.declared().lengths, drawn(text, seed).problem.lengths);
    EXPECT_FALSE(inputs.problem.device_lengths);
    EXPECT_EQ(inputs.lengths_q, drawn(text + "device_lengths=true", seed).lengths_q);
    for (size_t i = 0; i < 3; ++i) {
      const Sequence& actual = inputs.problem.lengths.sequences[i];
      const Sequence& capacity = inputs.declared().lengths.sequences[i];
      EXPECT_EQ(actual.q_length, inputs.lengths_q[i]);
      EXPECT_EQ(actual.k_length, inputs.lengths_k[i]);
      EXPECT_LE(actual.q_length, capacity.q_length);
      EXPECT_LE(actual.k_length, capacity.k_length);
      shorter = shorter || actual.q_length < capacity.q_length;
      if (actual.k_length == capacity.k_length) continue;
      EXPECT_EQ(load(inputs.k.view, actual.k_offset + actual.k_length, 0, 1), 0);
    }
  }
  EXPECT_TRUE(shorter);
}

TEST(Inputs, SinksAreFp32InEveryTypeAndSlopesTheDefault) {
  for (const std::string dtype : {"f64", "f32", "f16", "bf16"}) {
    const Inputs inputs =
        drawn("dtype=" + dtype + " heads=6/2 dim=4 lengths=5 sink=learnable alibi=default", 2);
    const DType wide = dtype == "f64" ? DType::kF64 : DType::kF32;
    EXPECT_EQ(inputs.sink.view.dtype, wide);
    const std::vector<double> slopes = default_alibi_slopes(6);
    for (int64_t head = 0; head < 6; ++head) {
      const double sink = load(inputs.sink.view, 0, head, 0);
      EXPECT_EQ(sink, static_cast<float>(sink)) << dtype;
      EXPECT_NE(sink, 0);
      const double slope = slopes[static_cast<size_t>(head)];
      EXPECT_EQ(load(inputs.slopes.view, 0, head, 0),
                wide == DType::kF64 ? slope : static_cast<float>(slope));
    }
  }
}

TEST(Inputs, TheSeedIsThatOfDropoutToo) {
  const std::string text = "dtype=f32 heads=1/1 dim=4 lengths=5";
  EXPECT_EQ(drawn(text + " dropout=0.5", 9).problem.dropout_seed, 9u);
  EXPECT_EQ(drawn(text + " dropout=0.5 dropout_seed=4", 9).problem.dropout_seed, 4u);
  EXPECT_FALSE(drawn(text, 9).problem.dropout_seed.has_value());
}

TEST(Inputs, DrawsAreStandardNormal) {
  Normal normal(3, 0);
  double sum = 0, squares = 0, fourth = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double x = normal.next();
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourth / kCount, 3, 0.1);
}

TEST(Inputs, CoresChangeNoBit) {
  const Inputs inputs = drawn("dtype=f64 heads=3/1 dim=3 lengths=1300", 7);
  Normal normal(7, static_cast<uint32_t>(Draw::kQ));
  for (int64_t row = 0; row < 1300; ++row) {
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t column = 0; column < 3; ++column) {
        ASSERT_EQ(load(inputs.q.view, row, head, column), normal.next()) << row;
      }
    }
  }
}

TEST(Inputs, MoreThanTheMachineHoldsIsRefused) {
  const auto source =
      resolve_source("dtype=f64 heads=1024/1024 dim=576 lengths=1000000000", "", {});
  ASSERT_TRUE(source.ok()) << source.error().text();
  const auto inputs = make_inputs(*source);
  ASSERT_FALSE(inputs.ok());
  EXPECT_EQ(inputs.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace longspan::tool
