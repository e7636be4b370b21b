// What cuDNN itself says to the provider's graphs, without a device: it is told about one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "providers/cudnn/budget.h"
#include "providers/cudnn/graph.h"
#include "providers/cudnn/plan.h"
#include "providers/cudnn/recorded_device.h"

namespace longspan::cudnn {
namespace {

using ::testing::HasSubstr;

class CudnnSupport : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { load_without_device(); }

  Support asked(const GraphKey& key) const {
    const auto support = check_support(key, properties_);
    EXPECT_TRUE(support.ok()) << support.error().text();
    return support.ok() ? *support : Support();
  }
  void expect_accepted(const GraphKey& key, const char* plan) const {
    const Support support = asked(key);
    EXPECT_TRUE(support.accepted) << text(key) << ": " << support.message;
    EXPECT_THAT(support.plan_name, HasSubstr(plan)) << text(key);
  }
  void expect_refused(const GraphKey& key, const char* part) const {
    const Support support = asked(key);
    EXPECT_FALSE(support.accepted) << text(key);
    EXPECT_THAT(support.message, HasSubstr(part)) << text(key);
  }

  const std::string properties_ = recorded_or_described();
};

GraphKey with_strides(GraphKey key) {
  const auto packed = [](int64_t rows, int64_t heads, int64_t dim) {
    return Strides{rows * heads * dim, heads * dim, dim};
  };
  AllStrides& s = key.strides;
  s[Slot::kQ] = s[Slot::kDq] = packed(key.sq, key.heads_q, key.dim_qk);
  s[Slot::kK] = s[Slot::kDk] = packed(key.skv, key.heads_kv, key.dim_qk);
  s[Slot::kV] = s[Slot::kDv] = packed(key.skv, key.heads_kv, key.dim_v);
  s[Slot::kO] = s[Slot::kDout] = packed(key.sq, key.heads_q, key.dim_v);
  s[Slot::kStats] = packed(key.sq, key.heads_q, 1);
  return key;
}

GraphKey graph(Direction direction, int64_t dim_qk, int64_t dim_v, Mask mask) {
  return with_strides({.direction = direction,
                       .heads_q = 16,
                       .heads_kv = 4,
                       .dim_qk = dim_qk,
                       .dim_v = dim_v,
                       .mask = mask,
                       .batch = 2,
                       .sq = 500,
                       .skv = 700});
}

GraphKey ragged(GraphKey key) {
  key.ragged = key.padded = true;
  if (key.direction == Direction::kBackward) key.total_q = key.total_k = 1024;
  return key;
}

constexpr Direction kForward = Direction::kForward;
constexpr Direction kBackward = Direction::kBackward;

TEST_F(CudnnSupport, EveryDim) {
  for (const auto& [qk, v] : {std::pair{8, 8},
                              {64, 64},
                              {72, 72},
                              {96, 96},
                              {128, 128},
                              {160, 160},
                              {192, 192},
                              {256, 256},
                              {192, 128},
                              {128, 64},
                              {64, 128}}) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      GraphKey key = graph(kForward, qk, v, {.right = 0});
      key.dtype = dtype;
      expect_accepted(key, "eng2_");
      expect_accepted(ragged(key), "eng2_");
      key.direction = kBackward;
      expect_accepted(key, "eng6_");
      key.padded = true;
      expect_accepted(key, "eng6_");
    }
  }
  expect_accepted(graph(kForward, 256, 128, {}), "eng9_");
}

TEST_F(CudnnSupport, EveryMask) {
  for (const Mask& mask : {Mask{}, Mask{.right = 0}, Mask{.right = 7}, Mask{.left = 9},
                           Mask{.left = 9, .right = 0}, Mask{.left = 9, .right = 7}}) {
    const char* const forward = mask.left || mask.right ? "eng2_" : "eng9_";
    expect_accepted(graph(kForward, 128, 128, mask), forward);
    expect_accepted(ragged(graph(kForward, 128, 128, mask)), forward);
    expect_accepted(graph(kBackward, 128, 128, mask), "eng6_");
    expect_accepted(ragged(graph(kBackward, 128, 128, mask)), "eng6_");
    GraphKey fixed = graph(kBackward, 128, 128, mask);
    fixed.deterministic = true;
    expect_accepted(fixed, "eng6_");
  }
  const Mask corner{.left = 9, .right = 0, .bottom_right = true};
  expect_accepted(ragged(graph(kForward, 128, 128, corner)), "eng2_");
}

TEST_F(CudnnSupport, WhatGroupsAndRulesAvoid) {
  GraphKey key = graph(kForward, 128, 128, {.left = 9});
  std::swap(key.sq, key.skv);
  expect_refused(key, "max_s_q <= max_s_kv");
  key.padded = true;
  expect_accepted(key, "eng2_");
  expect_refused(graph(kForward, 128, 128, {.right = -1}), "Right bound");
  expect_refused(graph(kBackward, 128, 128, {.left = 0}), "Left bound");
  expect_refused(graph(kBackward, 264, 264, {}), "less than or equal to 256");
  GraphKey one = graph(kBackward, 128, 128, {});
  one.sq = one.skv = 1;
  expect_refused(one, "s_q = s_kv = 1");
  GraphKey uneven = graph(kForward, 128, 128, {});
  uneven.heads_kv = 3;
  expect_refused(uneven, "number of heads");
}

/// Of heads, rows, both or neither, whatever the rows are; beside a mask of full lengths too.
TEST_F(CudnnSupport, EveryBias) {
  for (const auto& [sq, skv] : {std::pair{500, 700}, {512, 512}, {333, 1}, {700, 500}}) {
    for (const BiasShape& bias : {BiasShape{16, sq}, BiasShape{1, sq}, BiasShape{1, 1}}) {
      for (const Mask& mask : {Mask{}, Mask{.right = 0}, Mask{.left = 9, .right = 7}}) {
        GraphKey key = graph(kForward, 128, 128, mask);
        key.batch = 1;
        key.sq = sq;
        key.skv = skv;
        key.bias = bias;
        key.padded = mask.left && sq > skv;
        key = with_strides(key);
        expect_accepted(key, "eng2_");
        key.direction = kBackward;
        expect_accepted(key, "eng6_");
        key.padded = true;
        expect_accepted(key, "eng6_");
      }
    }
  }
}

/// One row against one key is declared longer.
TEST_F(CudnnSupport, SmallestBias) {
  GraphKey key = graph(kBackward, 64, 64, {});
  key.batch = 1;
  key.sq = key.skv = 128;
  key.bias = {16, 128};
  key.ragged = key.padded = true;
  expect_accepted(with_strides(key), "eng6_");
}

/// The workspace that a plan promises covers what cuDNN asks for.
TEST_F(CudnnSupport, WorkspaceIsWithinTheBudget) {
  std::mt19937_64 random(3);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t dims[] = {64, 72, 128, 192, 256};
    const int64_t dim = dims[pick(0, 4)];
    TileProblem p{.direction = round % 5 == 0 ? kForward : kBackward,
                  .dtype = DType::kBF16,
                  .heads_q = 8,
                  .heads_kv = 8,
                  .dim_qk = dim,
                  .dim_v = dim == 192 ? 128 : dim};
    if (pick(0, 1) == 0) p.heads_kv = 2, p.group = 4;
    p.features.deterministic = pick(0, 3) == 0;
    p.features.whole = pick(0, 1) == 0;
    p.features.bias = static_cast<Bias>(pick(0, 5));
    std::vector<PlacedTile> tiles;
    const int64_t count = pick(1, 12);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t nq = pick(1, 600);
      const int64_t nk = pick(1, 600);
      const Band band = pick(0, 1) == 0 ? Band() : Band{.hi = 0};
      tiles.push_back({.tile = {.q = {0, nq, 1}, .k = {0, nk, 1}, .band = band},
                       .q_row = p.capacity_q,
                       .k_row = p.capacity_k});
      p.capacity_q += nq;
      p.capacity_k += nk;
    }
    for (const Group& group : make_groups(p, tiles)) {
      const GraphKey key = packed_key(p, group, true, 0);
      const CudnnBytes bytes = cudnn_bytes(p, group);
      const auto support = check_support(key, properties_, bytes.engine);
      ASSERT_TRUE(support.ok()) << support.error().text();
      EXPECT_TRUE(support->accepted)
          << text(key) << " within " << bytes.engine << ": " << support->message;
    }
  }
}

}  // namespace
}  // namespace longspan::cudnn
