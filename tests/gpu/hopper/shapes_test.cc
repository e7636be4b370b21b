// Dims, types, masks, lengths and groups of heads.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "gpu/hopper/against_reference.h"
#include "providers/hopper/heuristics.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

/// Four query heads, `group` of them for each key head.
void set_group(Case& c, int64_t group) {
  c.problem.heads_kv = c.problem.heads_q / group;
  c.problem.group = group;
}

TEST(HopperShapes, IsOffered) {
  for (const auto& [dim, dim_v] : kKernelDims) {
    const TileProblem problem = make_case(128, 128, dim, dim_v).problem;
    const Verdict verdict = kHopper.consider(problem, lane_device(1));
    const Decline* const decline = declined(verdict);
    ASSERT_EQ(decline, nullptr) << decline->detail;
    EXPECT_FALSE(std::get<Offer>(verdict).partials_16bit);
    std::printf("%s\n", std::get<Offer>(verdict).detail.c_str());
  }
}

TEST(HopperShapes, EveryKernel) {
  uint64_t seed = 0;
  for (const auto& [dim, dim_v] : kKernelDims) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const Band& band : {kFull, kCausal}) {
        Case c = make_case(384, 640, dim, dim_v, dtype);
        c.tiles = {make_placed(0, 384, 0, 640, band)};
        check_case(c, ++seed);
      }
    }
  }
}

TEST(HopperShapes, OtherDims) {
  for (const auto& [qk, v] :
       {std::pair{8, 8}, {16, 16},   {32, 32},   {40, 40},   {72, 72},   {80, 80},
        {104, 104},      {160, 160}, {224, 224}, {264, 264}, {320, 320}, {448, 448},
        {136, 128},      {176, 24},  {136, 136}, {328, 328}, {384, 200}, {8, 392},
        {64, 128},       {128, 64},  {256, 8},   {8, 512}}) {
    Case c = make_case(260, 300, qk, v);
    c.tiles = {make_placed(0, 260, 0, 300, kCausal)};
    check_case(c, static_cast<uint64_t>(qk * 1000 + v));
  }
}

TEST(HopperShapes, EveryMask) {
  uint64_t seed = 100;
  const std::pair<int64_t, int64_t> sizes[] = {{300, 300}, {200, 430}, {430, 200}, {129, 900}};
  for (const auto& [dim, dim_v] : kKernelDims) {
    for (const auto& [nq, nk] : sizes) {
      const int64_t shift = nk - nq;
      for (const Band& band : {kFull,
                               kCausal,
                               Band{-kUnbounded, shift},
                               {-40, 0},
                               {-40, 30},
                               {-40, kUnbounded},
                               {-kUnbounded, 25},
                               {0, 0},
                               {-150, -20},
                               {30, 170},
                               {shift - 64, shift},
                               {5, 2}}) {
        Case c = make_case(nq, nk, dim, dim_v);
        set_group(c, int64_t{1} << (seed + seed / 12) % 3);  // all of them with each of 12 masks
        c.tiles = {make_placed(0, nq, 0, nk, band)};
        check_case(c, ++seed);
      }
    }
  }
}

TEST(HopperShapes, EveryRemainder) {
  uint64_t seed = 500;
  for (const auto& [dim, dim_v] : kKernelDims) {
    for (const int64_t nq : {1, 2, 63, 65, 127, 129, 192, 193}) {
      for (const int64_t nk : {1, 7, 80, 97, 112, 128, 161, 257}) {
        Case c = make_case(nq, nk, dim, dim_v);
        set_group(c, int64_t{1} << seed % 3);
        c.tiles = {make_placed(0, nq, 0, nk, (nq + nk) % 2 == 0 ? kCausal : kFull)};
        check_case(c, ++seed);
      }
    }
  }
}

TEST(HopperShapes, GroupsOfHeads) {
  struct Heads {
    int64_t q, kv, group, offset;
  };
  for (const Heads h : {Heads{4, 4, 1, 0},
                        {6, 2, 3, 0},
                        {8, 1, 8, 0},
                        {3, 1, 8, 2},
                        {4, 3, 2, 0},
                        {5, 3, 3, 2},
                        {12, 2, 8, 4},
                        {4, 1, 8, 2}}) {
    for (const int64_t dim : {64, 128, 256, 512}) {
      Case c = make_case(401, 370, dim, dim);
      c.problem.heads_q = h.q;
      c.problem.heads_kv = h.kv;
      c.problem.group = h.group;
      c.problem.group_offset = h.offset;
      c.tiles = {make_placed(10, 381, 20, 349, kCausal)};
      check_case(c, static_cast<uint64_t>(h.q * 10 + h.kv));
    }
  }
}

TEST(HopperShapes, HeadsShareBlocks) {
  struct Rows {
    int64_t q, k;
    Band band;
  };
  const Rows every[] = {{300, 300, kCausal},           {500, 500, {-200, 0}},
                        {401, 350, {-30, 49}},         {350, 201, {-300, -7}},
                        {20, 500, {-kUnbounded, 400}}, {200, 600, {200, kUnbounded}}};
  uint64_t seed = 700;
  for (const int64_t dim : {64, 40, 192, 256}) {
    for (const int64_t group : {2, 4}) {
      for (const Rows& rows : every) {
        Case c = make_case(rows.q, rows.k, dim, dim, group == 2 ? DType::kBF16 : DType::kF16);
        set_group(c, group);
        c.tiles = {make_placed(0, rows.q, 0, rows.k, rows.band)};
        c.problem.features.whole = true;
        EXPECT_EQ(hopper::block_heads(c.problem, c.tiles, hopper::narrowest_shape(dim, dim)), group)
            << c.text();
        check_whole(c, make_inputs(c, ++seed));
      }
    }
  }
}

/// Several tiles for each block of threads, of all orders.
TEST(HopperShapes, LongSequences) {
  uint64_t seed = 900;
  for (const auto& [dim, dim_v] : kKernelDims) {
    constexpr int64_t kRows = 1536;
    for (const Band& band : {kFull, kCausal, Band{-500, 0}}) {
      Case c = make_case(kRows, kRows, dim, dim_v);
      c.problem.heads_q = dim > 256 ? 8 : 24;
      c.problem.group = c.problem.heads_q / 2;
      c.tiles = {make_placed(0, kRows, 0, kRows, band)};
      check_case(c, ++seed);
    }
  }
}

TEST(HopperShapes, RandomCases) {
  std::mt19937_64 random(77);
  int offers = 0;
  for (int i = 0; i < 4000 && offers < 250; ++i) {
    Case c = random_case(random);
    c.problem.dtype = i % 2 == 0 ? DType::kBF16 : DType::kF16;
    const Verdict verdict = kHopper.consider(c.problem, lane_device(1));
    if (declined(verdict) != nullptr) continue;
    ++offers;
    check_merged(c, make_inputs(c, static_cast<uint64_t>(i)));
  }
  EXPECT_EQ(offers, 250);
}

}  // namespace
}  // namespace longspan::testing
