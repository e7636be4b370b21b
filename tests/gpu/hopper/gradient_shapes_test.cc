// Backward: dims, types, masks, lengths, groups of heads, and sizes of scratch.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "gpu/hopper/gradients.h"
#include "providers/hopper/backward/layout.h"
#include "providers/hopper/hopper.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};
/// One and two parts of the columns of each kernel.
constexpr int64_t kDims[] = {192, 256, 384, 512};

Case one_tile_case(int64_t nq, int64_t nk, int64_t qk, int64_t v, Band band,
                   DType dtype = DType::kBF16) {
  Case c = make_case(nq, nk, qk, v, dtype);
  c.tiles = {make_placed(0, nq, 0, nk, band)};
  return c;
}

TEST(HopperGradients, AreOffered) {
  for (const int64_t dim : kDims) {
    TileProblem problem = make_case(128, 128, dim, dim).problem;
    problem.direction = Direction::kBackward;
    const Verdict verdict = kHopper.consider(problem, lane_device(1));
    const Decline* const decline = declined(verdict);
    ASSERT_EQ(decline, nullptr) << decline->detail;
    EXPECT_FALSE(std::get<Offer>(verdict).partials_16bit);
    std::printf("%s\n", std::get<Offer>(verdict).detail.c_str());
  }
}

TEST(HopperGradients, EveryKernel) {
  uint64_t seed = 2000;
  std::vector<std::pair<int64_t, int64_t>> dims = {{192, 128}};
  for (const int64_t dim : kDims) dims.emplace_back(dim, dim);
  for (const auto& [qk, v] : dims) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const Band& band : {kFull, kCausal}) {
        check_backward(one_tile_case(384, 640, qk, v, band, dtype), ++seed);
      }
    }
  }
}

TEST(HopperGradients, OtherDims) {
  for (const auto& [qk, v] : {std::pair{136, 136},
                              {160, 160},
                              {200, 200},
                              {264, 264},
                              {320, 320},
                              {392, 392},
                              {448, 448},
                              {504, 504},
                              {192, 128},
                              {128, 192},
                              {136, 8},
                              {144, 72},
                              {192, 104},
                              {200, 72},
                              {256, 8},
                              {8, 256},
                              {64, 512},
                              {512, 40}}) {
    check_backward(one_tile_case(260, 300, qk, v, kCausal), static_cast<uint64_t>(qk * 1000 + v));
  }
}

TEST(HopperGradients, EveryMask) {
  uint64_t seed = 2100;
  const std::pair<int64_t, int64_t> sizes[] = {{300, 300}, {200, 430}, {430, 200}, {129, 900}};
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
                             {-kUnbounded, -210},
                             {5, 2}}) {
      check_backward(one_tile_case(nq, nk, 192, 192, band), ++seed);
      check_backward(one_tile_case(nq, nk, 192, 128, band), ++seed);
    }
  }
}

TEST(HopperGradients, EveryRemainder) {
  uint64_t seed = 2200;
  for (const int64_t nq : {1, 2, 63, 64, 65, 127, 129, 193}) {
    for (const int64_t nk : {1, 7, 64, 97, 128, 161, 255, 257}) {
      const Band band = (nq + nk) % 2 == 0 ? kCausal : kFull;
      check_backward(one_tile_case(nq, nk, 256, 256, band), ++seed);
      check_backward(one_tile_case(nq, nk, 192, 128, band), ++seed);
    }
  }
}

TEST(HopperGradients, GroupsOfHeads) {
  struct Heads {
    int64_t q, kv, group, offset;
  };
  for (const Heads h :
       {Heads{4, 4, 1, 0}, {6, 2, 3, 0}, {8, 1, 8, 0}, {3, 1, 8, 2}, {4, 3, 2, 0}, {5, 3, 3, 2}}) {
    for (const auto& [dim, dim_v] : {std::pair{192, 128}, {192, 192}, {512, 512}}) {
      Case c = make_case(401, 370, dim, dim_v);
      c.problem.heads_q = h.q;
      c.problem.heads_kv = h.kv;
      c.problem.group = h.group;
      c.problem.group_offset = h.offset;
      c.tiles = {make_placed(10, 381, 20, 349, kCausal)};
      check_backward(c, static_cast<uint64_t>(h.q * 10 + h.kv));
    }
  }
}

TEST(HopperGradients, FromOWithoutDelta) {
  std::vector<std::pair<int64_t, int64_t>> dims = {{192, 128}};
  for (const int64_t dim : kDims) dims.emplace_back(dim, dim);
  for (const auto& [dim, dim_v] : dims) {
    Case c = one_tile_case(300, 500, dim, dim_v, {-kUnbounded, 200});
    const Inputs in = make_inputs(c, 2300);
    const ExactBackward exact = exact_backward(c, in);
    check_whole_gradients(c, in, exact, {.from_o = true, .factor = 1.5});
  }
}

/// Several units for each block of threads, of all orders.
TEST(HopperGradients, LongSequences) {
  uint64_t seed = 2400;
  for (const auto& [dim, dim_v] : {std::pair{192, 128}, {192, 192}, {512, 512}}) {
    constexpr int64_t kRows = 1536;
    for (const Band& band : {kFull, kCausal, Band{-500, 0}}) {
      Case c = one_tile_case(kRows, kRows, dim, dim_v, band);
      c.problem.heads_q = 8;
      c.problem.group = 4;
      check_backward(c, ++seed);
    }
  }
}

/// Heads enough for dV to come last, so that every other head is summed backwards.
TEST(HopperGradients, HeadsOfTheirOwn) {
  uint64_t seed = 2450;
  for (const Band& band : {kFull, kCausal, Band{-200, 0}, Band{-kUnbounded, 150}}) {
    Case c = one_tile_case(500, 600, 192, 128, band);
    c.problem.heads_q = c.problem.heads_kv = 40;
    c.problem.group = 1;
    check_backward(c, ++seed);
  }
}

/// Sums of dV that are split between several parts, of lines and of heads.
TEST(HopperGradients, SplitSums) {
  uint64_t seed = 2480;
  for (const int64_t group : {1, 3}) {
    for (const Band& band : {kFull, kCausal, Band{-kUnbounded, 700}}) {
      Case c = one_tile_case(3300, 1200, 192, 128, band, DType::kF16);
      c.problem.heads_q = 3;
      c.problem.heads_kv = 3 / group;
      c.problem.group = group;
      for (const int64_t units : {60, 130}) {
        check_backward(c, ++seed, {.score_bytes = units * 2 * hopper::kUnitBytes});
      }
    }
  }
}

/// Chunks of a few units: FP32 sums are carried from chunk to chunk.
TEST(HopperGradients, SmallScratch) {
  uint64_t seed = 2500;
  for (const int64_t units : {1, 3, 8, 40}) {
    for (const Band& band : {kFull, kCausal, Band{-300, 40}, Band{-kUnbounded, -200}}) {
      for (const int64_t group : {1, 2, 8}) {
        Case c = one_tile_case(700, 900, 192, group == 2 ? 128 : 256, band);
        c.problem.heads_q = 8;
        c.problem.heads_kv = 8 / group;
        c.problem.group = group;
        check_backward(c, ++seed, {.score_bytes = units * 2 * hopper::kUnitBytes});
      }
    }
  }
}

TEST(HopperGradients, RandomCases) {
  std::mt19937_64 random(78);
  int offers = 0;
  for (int i = 0; i < 8000 && offers < 200; ++i) {
    Case c = random_case(random);
    c.problem.dtype = i % 2 == 0 ? DType::kBF16 : DType::kF16;
    TileProblem problem = c.problem;
    problem.direction = Direction::kBackward;
    if (declined(kHopper.consider(problem, lane_device(1))) != nullptr) continue;
    ++offers;
    const Inputs in = make_inputs(c, static_cast<uint64_t>(i));
    const int64_t units = pick(random, 1, 30);
    check_added(c, in, exact_backward(c, in), {.score_bytes = units * 2 * hopper::kUnitBytes});
  }
  EXPECT_EQ(offers, 200);
}

}  // namespace
}  // namespace longspan::testing
