// Every visible pair lies in one piece, and every piece is one that a build computes.
#include "providers/prepared/pieces.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "scene.h"

namespace longspan::prepared::testing {
namespace {

using Pairs = std::map<std::pair<int64_t, int64_t>, int>;

/// How often each pair of rows is computed.
Pairs pairs_of(const std::vector<Piece>& pieces) {
  Pairs pairs;
  for (const Piece& p : pieces) {
    for (int64_t i = 0; i < p.rows.nq; ++i) {
      for (int64_t j = 0; j < p.rows.nk; ++j) {
        const int64_t beyond = j - (i + p.rows.nk - p.rows.nq);
        if (p.sight.shape == Shape::kCausal && beyond > 0) continue;
        if (p.sight.shape == Shape::kWindow && (beyond > p.sight.right || -beyond > p.sight.left)) {
          continue;
        }
        ++pairs[{p.rows.q_row + i, p.rows.k_row + j}];
      }
    }
  }
  return pairs;
}

Pairs visible(const PlacedTile& t) {
  Pairs pairs;
  for (int64_t i = 0; i < t.tile.q.size(); ++i) {
    for (int64_t j = 0; j < t.tile.k.size(); ++j) {
      if (t.tile.band.sees(i, j)) pairs[{t.q_row + i, t.k_row + j}] = 1;
    }
  }
  return pairs;
}

TEST(PreparedPieces, CoverEveryBandOnce) {
  std::mt19937_64 random(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    const int64_t nq = pick(1, 12), nk = pick(1, 12);
    Band band;
    if (pick(0, 2) > 0) band.hi = pick(-nq, nk);
    if (pick(0, 2) == 0) band.lo = std::min(band.hi, pick(-nq, nk));
    const PlacedTile tile = placed(100, nq, 200, nk, band);
    TileProblem p = problem(round % 2 == 0 ? Direction::kForward : Direction::kBackward);
    p.features.whole = round % 3 == 0;
    EXPECT_EQ(pairs_of(make_pieces(p, {&tile, 1}, round % 5 == 0)), visible(tile))
        << nq << " " << nk << " " << band.lo << " " << band.hi;
  }
}

TEST(PreparedPieces, WindowWidthsAreNeverNegative) {
  for (int64_t lo = -9; lo <= 9; ++lo) {
    for (int64_t hi = lo; hi <= 9; ++hi) {
      const PlacedTile tile = placed(0, 7, 0, 9, {lo, hi});
      for (const Piece& p : make_pieces(problem(), {&tile, 1}, false)) {
        EXPECT_GE(p.sight.left, 0);
        EXPECT_GE(p.sight.right, 0);
      }
    }
  }
}

TEST(PreparedPieces, SquareCausalTilesStayWhole) {
  const PlacedTile tile = placed(0, 8, 0, 8, {-kUnbounded, 0});
  const auto pieces = make_pieces(problem(), {&tile, 1}, false);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].sight.shape, Shape::kCausal);
  EXPECT_FALSE(pieces[0].part);
}

TEST(PreparedPieces, QueriesThatSeeAllKeysAreAPieceOfTheirOwn) {
  const PlacedTile tile = placed(0, 10, 0, 6, {-kUnbounded, 0});
  const auto pieces = make_pieces(problem(), {&tile, 1}, true);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].rows.nq, 6);
  EXPECT_EQ(pieces[1].rows.nq, 4);
  EXPECT_EQ(pieces[1].sight.shape, Shape::kFull);
  TileProblem whole = problem(Direction::kBackward);
  whole.features.whole = true;
  const auto windows = make_pieces(whole, {&tile, 1}, true);
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].sight, (Sight{Shape::kWindow, 5, 4}));
}

}  // namespace
}  // namespace longspan::prepared::testing
