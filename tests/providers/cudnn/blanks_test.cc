// Rows of whole results: each is written by one execution or blank.
#include "providers/rows/blanks.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "providers/cudnn/groups.h"
#include "providers/cudnn/tiles.h"

namespace longspan::cudnn {
namespace {

using Ranges = std::vector<Range>;

rows::Blanks blanks(const TileProblem& p, const std::vector<PlacedTile>& tiles) {
  return blanks_of(p, tiles, make_groups(p, tiles));
}

TEST(CudnnBlanks, NothingWhereAllRowsSeeKeys) {
  TileProblem p = problem(Direction::kBackward, 100, 100);
  p.features.whole = true;
  const rows::Blanks b = blanks(p, {placed(0, 100, 0, 100, {-kUnbounded, 0})});
  EXPECT_TRUE(b.q.empty() && b.k.empty());
}

TEST(CudnnBlanks, RowsWithoutKeysAndKeysWithoutQueries) {
  TileProblem p = problem(Direction::kBackward, 100, 100);
  p.features.whole = true;
  EXPECT_EQ(blanks(p, {placed(10, 50, 20, 30, {-kUnbounded, -5})}).q, (Ranges{{10, 15}}));
  EXPECT_EQ(blanks(p, {placed(10, 20, 20, 30, {-kUnbounded, 0})}).k, (Ranges{{40, 50}}));
  const rows::Blanks empty = blanks(p, {placed(10, 20, 0, 0, {}), placed(30, 0, 0, 7, {})});
  EXPECT_EQ(empty.q, (Ranges{{10, 30}}));
  EXPECT_EQ(empty.k, (Ranges{{0, 7}}));
  p.direction = Direction::kForward;
  EXPECT_TRUE(blanks(p, {placed(10, 20, 20, 30, {-kUnbounded, 0})}).k.empty());
}

TEST(CudnnBlanks, AllQueriesWhereGroupsAdd) {
  TileProblem p = problem(Direction::kBackward, 8192, 8192);
  p.features.whole = true;
  const rows::Blanks b = blanks(p, {placed(0, 8192, 0, 8192, {-1024, 1024})});
  EXPECT_EQ(b.q, (Ranges{{0, 8192}}));
  EXPECT_TRUE(b.k.empty());
}

TEST(CudnnBlanks, AllKeysWhereHeadsAreLeftOut) {
  TileProblem p = problem(Direction::kBackward, 100, 100);
  p.features.whole = true;
  p.heads_kv = 3;
  EXPECT_EQ(blanks(p, {placed(0, 100, 0, 100, {})}).k, (Ranges{{0, 100}}));
}

TEST(CudnnBlanks, EveryRowOnce) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto direction = round % 2 == 0 ? Direction::kForward : Direction::kBackward;
    TileProblem p = problem(direction, 0, 0);
    p.features.whole = true;
    std::vector<PlacedTile> tiles;
    const int64_t count = pick(random, 1, 9);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t nq = pick(random, 0, 60);
      const int64_t nk = pick(random, 0, 60);
      const Band band{pick(random, 0, 1) == 0 ? -kUnbounded : pick(random, -40, 20),
                      pick(random, -20, 40)};
      tiles.push_back(placed(p.capacity_q, nq, p.capacity_k, nk, band));
      p.capacity_q += nq + pick(random, 0, 3);
      p.capacity_k += nk + pick(random, 0, 3);
    }
    const auto groups = make_groups(p, tiles);
    const rows::Blanks b = blanks_of(p, tiles, groups);
    std::vector<int> written(static_cast<size_t>(p.capacity_q));
    const auto write = [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) ++written[static_cast<size_t>(row)];
    };
    for (const Range& r : b.q) write(r.first, r.last);
    for (const Group& g : groups) {
      if (g.adds_dq) break;  // onto blank rows
      for (const Entry& e : g.entries) write(e.q_row, e.q_row + e.nq);
    }
    std::vector<int> wanted(written.size());
    for (const PlacedTile& t : tiles) {
      for (int64_t i = 0; i < t.tile.q.size(); ++i) wanted[static_cast<size_t>(t.q_row + i)] = 1;
    }
    EXPECT_EQ(written, wanted) << "round " << round;
  }
}

}  // namespace
}  // namespace longspan::cudnn
