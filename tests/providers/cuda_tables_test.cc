// The order in which cuda/reference takes tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "providers/cuda/tile_table.h"
#include "providers/support.h"

namespace longspan::cuda {
namespace {

using testing::make_placed;
using testing::pick;

struct Place {
  size_t wave = 0;
  size_t index = 0;
};

bool overlap(int64_t a, int64_t na, int64_t b, int64_t nb) { return a < b + nb && b < a + na; }

template <class T>
bool share(const T& a, const T& b, Written written) {
  return written == Written::kQueryRows ? overlap(a.q_row, a.queries, b.q_row, b.queries)
                                        : overlap(a.k_row, a.keys, b.k_row, b.keys);
}

/// Where the tile with sequence number `sequence` stands.
Place place_of(const TileTable& table, int64_t sequence) {
  const auto found = std::find_if(table.tiles.begin(), table.tiles.end(),
                                  [&](const TableTile& t) { return t.sequence == sequence; });
  const auto index = static_cast<size_t>(found - table.tiles.begin());
  size_t wave = 0;
  while (wave < table.waves.size() && index >= table.waves[wave].first + table.waves[wave].count) {
    ++wave;
  }
  return {wave, index};
}

/// `tiles` are numbered by their sequence.
void check_order(const std::vector<PlacedTile>& tiles, const TileTable& table, Written written) {
  std::vector<Place> places;
  std::vector<TableTile> sorted;
  for (const PlacedTile& t : tiles) {
    if (empty(t.tile)) continue;
    const Place place = place_of(table, t.tile.sequence);
    ASSERT_LT(place.index, table.tiles.size()) << "tile " << t.tile.sequence << " is missing";
    places.push_back(place);
    sorted.push_back(table.tiles[place.index]);
  }
  ASSERT_EQ(places.size(), table.tiles.size());
  for (size_t i = 0; i < places.size(); ++i) {
    size_t first_allowed = 0;
    for (size_t j = 0; j < i; ++j) {
      if (!share(sorted[i], sorted[j], written)) continue;
      EXPECT_GT(places[i].wave, places[j].wave) << "tiles " << j << " and " << i;
      first_allowed = std::max(first_allowed, places[j].wave + 1);
    }
    EXPECT_EQ(places[i].wave, first_allowed) << "tile " << i;
  }
}

void check_prefixes(const TileTable& table, Written written) {
  ASSERT_EQ(table.before.size(), table.tiles.size());
  size_t next = 0;
  for (const TileWave& wave : table.waves) {
    EXPECT_EQ(wave.first, next);
    EXPECT_GT(wave.count, 0u);
    int64_t rows = 0;
    for (size_t i = wave.first; i < wave.first + wave.count; ++i) {
      EXPECT_EQ(table.before[i], rows);
      rows += written == Written::kQueryRows ? table.tiles[i].queries : table.tiles[i].keys;
    }
    EXPECT_EQ(wave.rows, rows);
    next += wave.count;
  }
  EXPECT_EQ(next, table.tiles.size());
}

TEST(TileTable, OrderOfSharedRowsAndAsFewWavesAsItAllows) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<PlacedTile> tiles;
    const int64_t count = pick(random, 0, 60);
    const int64_t extent = pick(random, 0, 1) == 0 ? 60 : 3000;
    for (int64_t i = 0; i < count; ++i) {
      tiles.push_back(make_placed(pick(random, 0, extent), pick(random, 0, 40),
                                  pick(random, 0, extent), pick(random, 0, 40), {-kUnbounded, 3}));
      tiles.back().tile.sequence = static_cast<int32_t>(i);
    }
    for (const Written written : {Written::kQueryRows, Written::kKeyRows}) {
      const TileTable table = make_tile_table(tiles, written);
      check_order(tiles, table, written);
      check_prefixes(table, written);
    }
  }
}

TEST(TileTable, PackedSequencesAreOneLaunch) {
  std::vector<PlacedTile> tiles;
  for (int64_t i = 0; i < 5000; ++i) tiles.push_back(make_placed(16 * i, 16, 16 * i, 16, {}));
  const TileTable up = make_tile_table(tiles, Written::kKeyRows);
  ASSERT_EQ(up.waves.size(), 1u);
  EXPECT_EQ(up.waves[0].rows, 80000);
  std::reverse(tiles.begin(), tiles.end());
  EXPECT_EQ(make_tile_table(tiles, Written::kQueryRows).waves.size(), 1u);
}

TEST(TileTable, InterleavedTilesOfTwoRowsAreTwoLaunches) {
  const std::vector<PlacedTile> tiles = {make_placed(0, 8, 0, 8, {}), make_placed(0, 8, 8, 8, {}),
                                         make_placed(8, 8, 0, 8, {}), make_placed(8, 8, 8, 8, {})};
  EXPECT_EQ(make_tile_table(tiles, Written::kQueryRows).waves.size(), 2u);
  EXPECT_EQ(make_tile_table(tiles, Written::kKeyRows).waves.size(), 2u);
}

TEST(TileTable, CopiesWhatKernelsNeed) {
  PlacedTile t = make_placed(5, 3, 9, 4, {-kUnbounded - 7, 2});
  t.tile.sequence = 6;
  t.shift = -2;
  const TileTable table = make_tile_table({&t, 1}, Written::kQueryRows);
  ASSERT_EQ(table.tiles.size(), 1u);
  const TableTile& copy = table.tiles[0];
  EXPECT_EQ(copy.q_row, 5);
  EXPECT_EQ(copy.k_row, 9);
  EXPECT_EQ(copy.queries, 3);
  EXPECT_EQ(copy.keys, 4);
  EXPECT_EQ(copy.lo, -kUnbounded);  // so that rows can be added
  EXPECT_EQ(copy.hi, 2);
  EXPECT_EQ(copy.q_begin, t.tile.q.begin);
  EXPECT_EQ(copy.q_stride, t.tile.q.stride);
  EXPECT_EQ(copy.k_begin, t.tile.k.begin);
  EXPECT_EQ(copy.k_stride, t.tile.k.stride);
  EXPECT_EQ(copy.sequence, 6);
  EXPECT_EQ(copy.shift, -2);
}

TEST(TileTable, NothingVisibleIsNoLaunch) {
  const std::vector<PlacedTile> tiles = {make_placed(0, 8, 0, 8, {5, 2}),
                                         make_placed(3, 0, 3, 8, {})};
  const TileTable table = make_tile_table(tiles, Written::kKeyRows);
  EXPECT_TRUE(table.tiles.empty());
  EXPECT_TRUE(table.waves.empty());
  EXPECT_TRUE(make_tile_table({}, Written::kQueryRows).waves.empty());
}

}  // namespace
}  // namespace longspan::cuda
