// prepared against float64: dims, types, masks, groups of heads, tiles of a ring, packs.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "gpu/prepared/scene.h"
#include "providers/lane.h"
#include "providers/prepared/prepared.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};
/// A call of several tiles rounds each partial result to 16 bits.
constexpr double kPartials = 1.35;

Case one(int64_t nq, int64_t nk, int64_t dim, Band band, DType dtype = DType::kBF16) {
  Case c = make_case(nq, nk, dim, dim, dtype);
  c.tiles = {make_placed(0, nq, 0, nk, band)};
  return c;
}

void set_heads(Case& c, int64_t heads_q, int64_t heads_kv) {
  c.problem.heads_q = heads_q;
  c.problem.heads_kv = heads_kv;
  c.problem.group = heads_q / heads_kv;
}

TEST(PreparedShapes, IsOfferedByName) {
  for (const auto& [dim, engine] : {std::pair{128, "prepared:fa4"}, {512, "prepared:frost"}}) {
    const TileProblem problem = make_case(320, 320, dim, dim).problem;
    const Verdict verdict = kPrepared.consider(problem, lane_device(1));
    const Decline* const decline = declined(verdict);
    ASSERT_EQ(decline, nullptr) << decline->detail;
    const Offer& offer = std::get<Offer>(verdict);
    EXPECT_TRUE(offer.detail.starts_with(engine)) << offer.detail;
    EXPECT_TRUE(offer.partials_16bit);
    std::printf("%s\n", offer.detail.c_str());
  }
}

TEST(PreparedShapes, Dims) {
  for (const int64_t dim : {64, 128, 256}) {
    for (const Band& band : {kFull, Band{-kUnbounded, 40}, kCausal}) {
      check_prepared(one(300, 340, dim, band), static_cast<uint64_t>(dim));
    }
  }
  for (const Band& band : {kFull, kCausal}) {
    Case c = make_case(300, 340, 192, 128);
    c.tiles = {make_placed(0, 300, 0, 340, band)};
    check_forward(c, 5);  // backward has it without groups alone
    set_heads(c, 2, 2);
    check_prepared(c, 5);
  }
}

TEST(PreparedShapes, HalfPrecision) {
  for (const Band& band : {kFull, kCausal}) {
    check_prepared(one(300, 300, 128, band, DType::kF16), 6);
  }
}

TEST(PreparedShapes, GroupsOfHeads) {
  for (const auto& [q, kv] : {std::pair{2, 2}, {8, 2}, {6, 3}}) {
    Case c = one(301, 270, 128, kCausal);
    set_heads(c, q, kv);
    check_prepared(c, 7);
  }
}

TEST(PreparedShapes, HeadsThatNoQueryReads) {
  Case c = one(201, 170, 128, kCausal);
  c.problem.heads_kv = 3;
  check_prepared(c, 8);
}

TEST(PreparedShapes, EveryMask) {
  uint64_t seed = 100;
  const std::pair<int64_t, int64_t> sizes[] = {{300, 300}, {200, 430}, {430, 200}};
  for (const auto& [nq, nk] : sizes) {
    const int64_t shift = nk - nq;
    const Band bands[] = {kFull,       kCausal,           {-kUnbounded, shift}, {-40, 0},
                          {-40, 30},   {-40, kUnbounded}, {-kUnbounded, 25},    {0, 0},
                          {-150, -20}, {30, 170},         {shift - 64, shift}};
    for (const Band& band : bands) check_prepared(one(nq, nk, 128, band), ++seed);
  }
}

TEST(PreparedShapes, SmallTiles) {
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1},   {1, 77},  {77, 1},    {3, 5},    {63, 65},
                                               {64, 64}, {65, 63}, {127, 129}, {129, 127}};
  for (const auto& [nq, nk] : sizes) {
    for (const Band& band : {kFull, kCausal}) check_prepared(one(nq, nk, 128, band), 3);
  }
}

/// Steps of a ring: the same queries against other keys, merged one after the other.
TEST(PreparedShapes, TilesOfARing) {
  Case c = make_case(300, 600, 128, 128);
  c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(0, 300, 300, 300, kFull)};
  const Inputs in = make_inputs(c, 9);
  Compared r = compute_exact(c, in);
  compute_prepared(c, in, Given::kDelta, true, r);
  expect_right(c, r, true, kPartials);
}

TEST(PreparedShapes, EqualSequences) {
  for (const int64_t step : {150, 160}) {
    Case c = make_case(500, 500, 128, 128);
    for (int64_t i = 0; i < 3; ++i) {
      c.tiles.push_back(make_placed(step * i, 150, step * i, 150, kCausal));
    }
    check_prepared(c, 10);
  }
}

TEST(PreparedShapes, PacksWithGapsAndEmptySequences) {
  for (const int64_t gap : {0, 7}) {
    for (const Band& band : {kFull, kCausal, Band{-20, 15}}) {
      Case c = make_case(700, 760, 128, 128);
      int64_t q = gap;
      int64_t k = gap;
      const std::pair<int64_t, int64_t> sizes[] = {{70, 70}, {0, 40},    {130, 130}, {5, 0},
                                                   {1, 90},  {300, 310}, {64, 64}};
      for (const auto& [nq, nk] : sizes) {
        c.tiles.push_back(make_placed(q, nq, k, nk, band));
        q += nq + gap;
        k += nk + gap;
      }
      check_prepared(c, 11, kPartials);
    }
  }
}

TEST(PreparedShapes, ManySmallSequences) {
  Case c = make_case(1200, 1200, 128, 128);
  int64_t row = 0;
  for (int64_t i = 0; i < 60; ++i) {
    const int64_t length = 1 + i * 7 % 37;
    c.tiles.push_back(make_placed(row, length, row, length, kCausal));
    row += length;
  }
  check_prepared(c, 12);
}

TEST(PreparedShapes, StridesAndScalesOfEveryKind) {
  for (const int64_t gap : {0, 1, 8}) {
    for (const Memory order : {Memory::kTokenMajor, Memory::kHeadMajor}) {
      for (const double scale : {0.11, 0.0, -0.11}) {
        Case c = make_case(400, 400, 128, 128);
        c.gap = gap;
        c.memory = order;
        c.batch = 2;
        c.scale = scale;
        c.tiles = {make_placed(0, 150, 0, 150, kCausal), make_placed(150, 150, 150, 150, kCausal),
                   make_placed(310, 80, 305, 95, kFull)};
        check_prepared(c, 70);
      }
    }
  }
}

TEST(PreparedShapes, RowsWithoutKeysAndKeysWithoutQueries) {
  Case c = make_case(400, 420, 128, 128);
  c.tiles = {make_placed(10, 150, 5, 140, {-kUnbounded, -30}),
             make_placed(170, 100, 150, 200, kCausal), make_placed(280, 40, 350, 0, kFull),
             make_placed(330, 0, 360, 50, kFull)};
  check_prepared(c, 1);
}

TEST(PreparedShapes, FrostForward) {
  for (const auto& [nq, nk] : {std::pair{320, 320}, {300, 320}, {320, 65}, {1, 200}, {130, 1}}) {
    for (const Band& band : {kFull, kCausal, Band{-kUnbounded, nk - nq}}) {
      check_forward(one(nq, nk, 512, band), 20);
    }
  }
}

TEST(PreparedShapes, FrostPacksAndScales) {
  for (const double scale : {0.04, 0.0, -0.04}) {
    Case c = make_case(320, 320, 512, 512);
    c.scale = scale;
    c.tiles = {make_placed(0, 90, 0, 90, kCausal), make_placed(95, 100, 100, 130, kFull),
               make_placed(200, 64, 240, 64, kCausal)};
    check_forward(c, 21);
  }
}

TEST(PreparedShapes, WhatIsNotInTheStoreIsDeclinedWithTheCommand) {
  const Verdict verdict = kPrepared.consider(make_case(64, 64, 96, 96).problem, lane_device(1));
  const Decline* const decline = declined(verdict);
  ASSERT_NE(decline, nullptr);
  EXPECT_EQ(decline->code, DeclineCode::kNotPrepared);
  EXPECT_NE(decline->detail.find("longspan prepare --out"), std::string::npos) << decline->detail;
}

}  // namespace
}  // namespace longspan::testing
