// cudnn against float64: dims, types, masks, groups of heads, tiles of a ring, packs.
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "gpu/cudnn/against_host.h"
#include "providers/cudnn/cudnn.h"
#include "providers/lane.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

/// A call of several tiles rounds each partial result to 16 bits.
constexpr double kPartials = 1.35;

TEST(CudnnShapes, IsOffered) {
  const Case c = make_case(128, 128, 128, 128);
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    TileProblem problem = c.problem;
    problem.direction = direction;
    const Verdict verdict = kCudnn.consider(problem, lane_device(1));
    const Decline* const decline = declined(verdict);
    ASSERT_EQ(decline, nullptr) << decline->detail;
    EXPECT_TRUE(std::get<Offer>(verdict).partials_16bit);
    std::printf("%s\n", std::get<Offer>(verdict).detail.c_str());
  }
}

TEST(CudnnShapes, EveryDimAndType) {
  uint64_t seed = 1;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const auto& [qk, v] : {std::pair{8, 8},
                                {32, 32},
                                {64, 64},
                                {72, 72},
                                {80, 80},
                                {96, 96},
                                {128, 128},
                                {160, 160},
                                {192, 192},
                                {256, 256},
                                {192, 128},
                                {128, 64},
                                {64, 128}}) {
      for (const Band& band : {kCausal, kFull}) {
        Case c = make_case(260, 300, qk, v, dtype);
        c.tiles = {make_placed(0, 260, 0, 300, band)};
        check_case(c, ++seed);
      }
    }
  }
}

TEST(CudnnShapes, EveryMask) {
  uint64_t seed = 100;
  const std::pair<int64_t, int64_t> sizes[] = {{300, 300}, {200, 430}, {430, 200}, {129, 640}};
  for (const auto& [nq, nk] : sizes) {
    const int64_t shift = nk - nq;
    const Band bands[] = {kFull,       kCausal,           {-kUnbounded, shift}, {-40, 0},
                          {-40, 30},   {-40, kUnbounded}, {-kUnbounded, 25},    {0, 0},
                          {-150, -20}, {30, 170},         {shift - 64, shift}};
    for (const Band& band : bands) {
      Case c = make_case(nq, nk, 128, 128);
      c.tiles = {make_placed(0, nq, 0, nk, band)};
      check_case(c, ++seed);
    }
  }
}

/// Bands that backward computes in two parts.
TEST(CudnnShapes, WideBands) {
  for (const Band& band : {Band{-300, 300}, Band{-kUnbounded, 700}, Band{-100, 900}}) {
    Case c = make_case(2000, 2200, 64, 64);
    c.problem.heads_q = c.problem.heads_kv = 16;
    c.problem.group = 1;
    c.tiles = {make_placed(0, 2000, 0, 2200, band)};
    check_case(c, 7, kPartials);
  }
}

TEST(CudnnShapes, GroupsOfHeads) {
  struct Heads {
    int64_t q, kv, group, offset;
  };
  for (const Heads h :
       {Heads{4, 4, 1, 0}, {6, 2, 3, 0}, {8, 1, 8, 0}, {3, 1, 8, 2}, {4, 3, 2, 0}}) {
    Case c = make_case(200, 170, 64, 64);
    c.problem.heads_q = h.q;
    c.problem.heads_kv = h.kv;
    c.problem.group = h.group;
    c.problem.group_offset = h.offset;
    c.tiles = {make_placed(10, 180, 20, 150, kCausal)};
    check_case(c, static_cast<uint64_t>(h.q * 10 + h.kv));
  }
}

/// Tiny tiles: every remainder of blocks, one row, one key, both.
TEST(CudnnShapes, SmallTiles) {
  for (const auto& [nq, nk] : {std::pair{1, 1},
                               {1, 2},
                               {2, 1},
                               {1, 77},
                               {77, 1},
                               {1, 64},
                               {3, 5},
                               {5, 3},
                               {63, 65},
                               {65, 63},
                               {64, 64},
                               {127, 129},
                               {128, 192}}) {
    for (const Band& band : {kFull, kCausal}) {
      Case c = make_case(nq, nk, 128, 128);
      c.tiles = {make_placed(0, nq, 0, nk, band)};
      const Inputs in = make_inputs(c, 3);
      const Compared r = compute_both(c, in);
      EXPECT_LT(relative_rms(r.device.carry.o.values(), r.exact.carry.o.values()), 4e-3);
      EXPECT_LT(relative_rms(r.device.gradients.dv.values(), r.exact.gradients.dv.values()), 4e-3);
      // Rows of few keys cancel: p (dP - delta).
      EXPECT_TRUE(finite(r.device.gradients.dq) && finite(r.device.gradients.dk)) << c.text();
      EXPECT_TRUE(finite(r.device.carry.lse)) << c.text();
    }
  }
}

/// Steps of a ring: tiles that share rows, in one call and in several.
TEST(CudnnShapes, RingOfTiles) {
  Case c = make_case(600, 600, 128, 128);
  c.tiles = {make_placed(0, 300, 0, 300, kCausal), make_placed(300, 300, 0, 300, kFull),
             make_placed(300, 300, 300, 300, kCausal)};
  const Inputs in = make_inputs(c, 5);
  Compared r = compute_both(c, in);
  expect_close(c, r, kPartials);
  r.device.carry = empty_carry(c, DType::kF32);
  r.device.gradients = zero_gradients(c, DType::kF32);
  for (const PlacedTile& tile : {c.tiles[1], c.tiles[2], c.tiles[0]}) {
    forward(kCudnn, lane_device(1), c, in, {&tile, 1}, r.device.carry);
    backward(kCudnn, lane_device(1), c, in, {&tile, 1}, r.lse, r.delta, r.device.gradients);
  }
  expect_close(c, r, kPartials);
}

/// Self-attention of sequences that lie behind each other, `gap` rows apart.
std::vector<PlacedTile> pack(const std::vector<int64_t>& queries, const std::vector<int64_t>& keys,
                             int64_t gap, const Band& band, bool bottom_right) {
  std::vector<PlacedTile> tiles;
  int64_t q = 0;
  int64_t k = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    const int64_t shift = bottom_right ? keys[i] - queries[i] : 0;
    Band local = band;
    if (local.lo > -kUnbounded) local.lo += shift;
    if (local.hi < kUnbounded) local.hi += shift;
    tiles.push_back(make_placed(q, queries[i], k, keys[i], local));
    q += queries[i] + gap;
    k += keys[i] + gap;
  }
  return tiles;
}

/// NaN in every row that no tile has.
void poison(const std::vector<PlacedTile>& tiles, bool keys, Tensor& tensor) {
  std::vector<bool> used(static_cast<size_t>(tensor.shape().rows));
  for (const PlacedTile& t : tiles) {
    const int64_t first = keys ? t.k_row : t.q_row;
    const int64_t rows = keys ? t.tile.k.size() : t.tile.q.size();
    for (int64_t i = 0; i < rows; ++i) used[static_cast<size_t>(first + i)] = true;
  }
  for (int64_t row = 0; row < tensor.shape().rows; ++row) {
    if (used[static_cast<size_t>(row)]) continue;
    for (int64_t h = 0; h < tensor.shape().heads; ++h) {
      for (int64_t i = 0; i < tensor.shape().dim; ++i) tensor.set(row, h, i, NAN);
    }
  }
}

void check_pack(Case c, uint64_t seed) {
  Inputs in = make_inputs(c, seed);
  poison(c.tiles, false, in.q);
  poison(c.tiles, true, in.k);
  poison(c.tiles, true, in.v);
  poison(c.tiles, false, in.dout);
  Compared r = compute_both(c, in);
  expect_close(c, r, kPartials);
}

TEST(CudnnPacks, EmptySequencesGapsAndNaNBetween) {
  // Sequences without queries, without keys, and without both.
  const std::vector<int64_t> queries = {70, 0, 130, 5, 0, 1, 300, 64};
  const std::vector<int64_t> keys = {70, 40, 130, 0, 0, 200, 310, 64};
  uint64_t seed = 20;
  for (const auto& [qk, v] : {std::pair{64, 64}, {128, 128}, {192, 128}, {256, 256}, {72, 72}}) {
    for (const Band& band : {kFull, kCausal, Band{-50, 0}}) {
      for (const bool bottom_right : {false, true}) {
        if (bottom_right && band == kFull) continue;
        Case c = make_case(640, 900, qk, v);
        c.tiles = pack(queries, keys, 7, band, bottom_right);
        check_pack(c, ++seed);
      }
    }
  }
}

TEST(CudnnPacks, ManySequencesOfEveryLength) {
  std::mt19937_64 random(4);
  for (const Band& band : {kFull, kCausal}) {
    std::vector<int64_t> lengths;
    int64_t rows = 0;
    for (int i = 0; i < 90; ++i) {
      lengths.push_back(i % 9 == 0 ? 0 : pick(random, 1, i % 7 == 0 ? 260 : 30));
      rows += lengths.back();
    }
    Case c = make_case(rows, rows, 64, 64);
    c.tiles = pack(lengths, lengths, 0, band, false);
    check_pack(c, 31);
  }
}

/// One query a sequence, as in decoding (statistics per head, not per group).
TEST(CudnnPacks, OneQueryASequence) {
  std::vector<int64_t> keys;
  int64_t rows = 0;
  for (int64_t i = 0; i < 20; ++i) {
    keys.push_back(3 + 11 * i);
    rows += keys.back();
  }
  Case c = make_case(20, rows, 128, 128);
  c.tiles = pack(std::vector<int64_t>(20, 1), keys, 0, kFull, false);
  check_pack(c, 32);
}

/// Rows that no tile reaches keep what they held.
TEST(CudnnPacks, RowsOfNoTileStay) {
  Case c = make_case(500, 500, 64, 64);
  c.tiles = pack({70, 30, 90, 5, 80, 60}, {70, 0, 90, 5, 80, 60}, 9, kCausal, false);
  const Inputs in = make_inputs(c, 6);
  Compared r = compute_both(c, in);
  const std::vector<double> lse = r.device.carry.lse.values();
  const std::vector<double> o = r.device.carry.o.values();
  const int64_t heads = c.problem.heads_q;
  // The sequence without keys, and the rows behind the first sequence.
  for (const int64_t row : {int64_t{70}, int64_t{78}, int64_t{79}, int64_t{108}, int64_t{499}}) {
    for (int64_t head = 0; head < heads; ++head) {
      const size_t place = static_cast<size_t>(row * heads + head);
      EXPECT_EQ(lse[place], -INFINITY);
      EXPECT_EQ(o[place * 64], 0);
    }
  }
}

}  // namespace
}  // namespace longspan::testing
