// cudnn against float64: packs of sequences, with NaN wherever nobody may look.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "gpu/cudnn/against_host.h"

namespace longspan::testing {
namespace {

constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};
constexpr double kPartials = 1.35;  // partial results in 16 bits

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
