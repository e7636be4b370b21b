// Pieces in as few runs as builds and buffers allow.
#include "providers/prepared/launches.h"

#include <gtest/gtest.h>

#include "scene.h"

namespace longspan::prepared::testing {
namespace {

Piece piece(int64_t row, int64_t rows, Sight sight = {}) {
  return {.rows = {.q_row = row, .k_row = row, .nq = rows, .nk = rows}, .sight = sight};
}

Result<std::vector<Launch>> launches(const Builds& b, const std::vector<Piece>& pieces) {
  return make_launches(problem(), b, pieces);
}

const Builds& dense() {
  static const Builds b = builds({{"full", "dense"}, {"causal", "dense"}});
  return b;
}
const Builds& both() {
  static const Builds b = builds({{"full", "dense"}, {"full", "packed"}, {"causal", "dense"}});
  return b;
}

TEST(PreparedLaunches, EqualSequencesAreABatch) {
  const auto result = launches(dense(), {piece(0, 50), piece(100, 50), piece(200, 50)});
  ASSERT_EQ(result->size(), 1u);
  EXPECT_EQ((*result)[0].batch(), 3);
  EXPECT_EQ((*result)[0].sq(), 50);
  EXPECT_FALSE((*result)[0].packed);
}

TEST(PreparedLaunches, HalvesOfEqualSequencesAreABatchEach) {
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < 4; ++i) {
    for (const int64_t half : {0, 50}) {
      pieces.push_back(piece(130 * i + half, 50));
      pieces.back().rows.tokens.sequence = i;
    }
  }
  for (const Builds* const b : {&dense(), &both()}) {
    const auto result = launches(*b, pieces);
    ASSERT_EQ(result->size(), 2u);  // in one list they lie at two distances in turn
    for (const Launch& launch : *result) {
      EXPECT_FALSE(launch.packed);
      EXPECT_EQ(launch.batch(), 4);
    }
  }
}

TEST(PreparedLaunches, UnequalOnesArePackedWhereABuildCan) {
  const std::vector<Piece> pieces = {piece(0, 50), piece(50, 30), piece(80, 7)};
  const auto packed = launches(both(), pieces);
  ASSERT_EQ(packed->size(), 1u);
  EXPECT_TRUE((*packed)[0].packed);
  EXPECT_EQ((*packed)[0].sq(), 87);
  EXPECT_EQ((*packed)[0].batch(), 1);
  EXPECT_EQ(launches(dense(), pieces)->size(), 3u);
}

TEST(PreparedLaunches, AnotherSightIsAnotherLaunch) {
  const auto result = launches(both(), {piece(0, 50), piece(50, 50, {Shape::kCausal})});
  ASSERT_EQ(result->size(), 2u);
  EXPECT_EQ((*result)[1].kernel->manifest().serves.shape, Shape::kCausal);
}

TEST(PreparedLaunches, RowsThatMeetAreNotInOneLaunch) {
  EXPECT_EQ(launches(both(), {piece(0, 50), piece(20, 50)})->size(), 2u);
  EXPECT_EQ(launches(both(), {piece(60, 50), piece(0, 50)})->size(), 2u);
}

TEST(PreparedLaunches, PaddedRowsFitTheBuffers) {
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < 500; ++i) pieces.push_back(piece(2 * i, 1 + i % 2));
  const auto result = launches(both(), pieces);
  size_t entries = 0;
  for (const Launch& launch : *result) {
    entries += launch.entries.size();
    const auto count = static_cast<int64_t>(launch.entries.size());
    const Manifest& m = launch.kernel->manifest();
    EXPECT_LE(padded_rows(launch.rows_q(), count, m.tile_q, launch.packed),
              most_padded_rows(problem().capacity_q, m.tile_q, launch.packed));
    EXPECT_LE(padded_rows(launch.rows_k(), count, m.tile_k, launch.packed),
              most_padded_rows(problem().capacity_k, m.tile_k, launch.packed));
  }
  EXPECT_EQ(entries, pieces.size());
  EXPECT_GT(result->size(), 1u);
  EXPECT_LT(result->size(), 10u);
}

TEST(PreparedLaunches, OneEntryAlwaysFits) {
  for (int64_t capacity = 1; capacity < 400; ++capacity) {
    for (const int64_t tile : {48, 64, 80, 128}) {
      for (const bool packed : {false, true}) {
        EXPECT_LE(padded_rows(capacity, 1, tile, packed), most_padded_rows(capacity, tile, packed));
      }
    }
  }
}

TEST(PreparedLaunches, AMissingBuildIsNamed) {
  const auto result = launches(dense(), {piece(0, 5, {Shape::kWindow, 1, 1})});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "no window build for 5 x 5 rows");
}

}  // namespace
}  // namespace longspan::prepared::testing
