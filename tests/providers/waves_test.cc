// Waves hold no two tiles that write the same row, keep the order and visit every item once.
#include "providers/cpu/waves.h"

#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <vector>

#include "providers/support.h"

namespace longspan::cpu {
namespace {

using testing::make_placed;

bool overlap(int64_t a, int64_t na, int64_t b, int64_t nb) {
  return na > 0 && nb > 0 && a < b + nb && b < a + na;
}

bool conflict(const PlacedTile& a, const PlacedTile& b, Writes writes) {
  if (overlap(a.q_row, a.tile.q.size(), b.q_row, b.tile.q.size())) return true;
  return writes == Writes::kQueryAndKeyRows &&
         overlap(a.k_row, a.tile.k.size(), b.k_row, b.tile.k.size());
}

std::vector<size_t> wave_ends(const std::vector<PlacedTile>& tiles, Writes writes) {
  std::vector<size_t> ends;
  for (size_t begin = 0; begin < tiles.size(); begin = ends.back()) {
    const Wave wave(tiles, begin, writes, [](const PlacedTile&) { return int64_t{1}; });
    ends.push_back(wave.end());
  }
  return ends;
}

TEST(Waves, NoTwoTilesOfAWaveConflict) {
  std::mt19937_64 random(1);
  const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    std::vector<PlacedTile> tiles;
    const int64_t count = 1 + pick(200);
    for (int64_t i = 0; i < count; ++i) {
      tiles.push_back(make_placed(pick(5000), pick(60), pick(5000), pick(60), {}));
    }
    for (const Writes writes : {Writes::kQueryRows, Writes::kQueryAndKeyRows}) {
      size_t begin = 0;
      for (const size_t end : wave_ends(tiles, writes)) {
        ASSERT_GT(end, begin);
        for (size_t i = begin; i < end; ++i) {
          for (size_t j = begin; j < i; ++j) ASSERT_FALSE(conflict(tiles[i], tiles[j], writes));
        }
        begin = end;
      }
      ASSERT_EQ(begin, tiles.size());
    }
  }
}

TEST(Waves, PackedSequencesAreOneWave) {
  std::vector<PlacedTile> up;
  for (int64_t i = 0; i < 1000; ++i) up.push_back(make_placed(16 * i, 16, 16 * i, 16, {}));
  EXPECT_EQ(wave_ends(up, Writes::kQueryAndKeyRows), std::vector<size_t>{1000});
  const std::vector<PlacedTile> down(up.rbegin(), up.rend());
  EXPECT_EQ(wave_ends(down, Writes::kQueryAndKeyRows), std::vector<size_t>{1000});
}

TEST(Waves, TilesOfOneRowFollowEachOther) {
  const std::vector<PlacedTile> tiles = {make_placed(0, 8, 0, 8, {}), make_placed(8, 8, 0, 8, {}),
                                         make_placed(0, 8, 8, 8, {}), make_placed(8, 8, 8, 8, {})};
  EXPECT_EQ(wave_ends(tiles, Writes::kQueryRows), (std::vector<size_t>{2, 4}));
  EXPECT_EQ(wave_ends(tiles, Writes::kQueryAndKeyRows), (std::vector<size_t>{1, 3, 4}));
}

TEST(Waves, TilesThatShareMoreThanRowsAreAlone) {
  const std::vector<PlacedTile> tiles = {make_placed(0, 8, 0, 8, {}), make_placed(8, 8, 8, 8, {}),
                                         make_placed(16, 8, 16, 8, {})};
  EXPECT_EQ(wave_ends(tiles, Writes::kShared), (std::vector<size_t>{1, 2, 3}));
}

TEST(Waves, EveryItemOnce) {
  std::vector<PlacedTile> tiles;
  std::vector<std::vector<int>> visits;
  for (int64_t i = 0; i < 700; ++i) {
    tiles.push_back(make_placed(4 * i, 1, 4 * i, 1, {}));
    visits.emplace_back(static_cast<size_t>(i % 5));  // some tiles have no item
  }
  const auto items = [&](const PlacedTile& t) { return t.q_row / 4 % 5; };
  const Wave wave(tiles, 0, Writes::kQueryRows, items);
  ASSERT_EQ(wave.items(), 1400);
  Workers workers(3);
  std::mutex mutex;
  std::vector<int> numbers(1400);
  wave.run(workers, [&](size_t tile, int64_t item, int64_t number, int slot) {
    const std::lock_guard lock(mutex);
    ++visits[tile][static_cast<size_t>(item)];
    ++numbers[static_cast<size_t>(number)];
    EXPECT_LT(slot, 3);
  });
  for (const auto& tile : visits) EXPECT_EQ(tile, std::vector<int>(tile.size(), 1));
  EXPECT_EQ(numbers, std::vector<int>(1400, 1));
}

}  // namespace
}  // namespace longspan::cpu
