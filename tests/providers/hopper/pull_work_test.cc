// What a launch moves: every row that tiles read and that does not lie where it is read, once.
#include "providers/hopper/pull_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "providers/hopper/check_pulls.h"

namespace longspan::hopper {
namespace {

using ::testing::HasSubstr;

constexpr PullShape kShape{
    .keys = 128, .unit_bytes = 2048, .row_bytes_k = 256, .row_bytes_v = 512, .lenders = 2};

PlacedTile placed(int64_t k_row, int64_t keys, int64_t queries = 100) {
  return {.tile = {.q = {0, queries, 1}, .k = {0, keys, 1}, .band = {}}, .k_row = k_row};
}

Pull pull(int lender, int64_t src_row, int64_t dst_row, int64_t rows) {
  return {.lender = lender, .src_row = src_row, .dst_row = dst_row, .rows = rows};
}

/// A row of a loan.
struct Source {
  int loan;
  int64_t row;
  bool operator==(const Source&) const = default;
};

/// Where the bytes of each gathered row of K (0) or V (1) come from. Fails where units overlap, are
/// too large, or cut what is no multiple of 16 bytes.
std::map<int64_t, Source> moved(const PullWork& work, int tensor) {
  const int64_t row_bytes = tensor == 0 ? kShape.row_bytes_k : kShape.row_bytes_v;
  std::map<int64_t, Source> rows;
  std::map<int64_t, int64_t> bytes;
  for (const PullUnit& unit : work.units) {
    if (unit.loan % 2 != tensor) continue;
    EXPECT_LE(unit.bytes, kShape.unit_bytes);
    EXPECT_EQ(unit.bytes % 16, 0);
    EXPECT_EQ(unit.src % row_bytes, unit.dst % row_bytes);
    EXPECT_EQ(unit.dst / row_bytes >> work.piece_log2, unit.piece);
    EXPECT_EQ((unit.dst + unit.bytes - 1) / row_bytes >> work.piece_log2, unit.piece);
    for (int64_t at = 0; at < unit.bytes; at += 16) {
      const Source source{unit.loan, (unit.src + at) / row_bytes};
      const auto [row, fresh] = rows.emplace((unit.dst + at) / row_bytes, source);
      EXPECT_EQ(row->second, source);
      ++bytes[(unit.dst + at) / row_bytes];
    }
  }
  for (const auto& [row, count] : bytes) EXPECT_EQ(count * 16, row_bytes) << row;
  return rows;
}

TEST(HopperPullWork, OwnBlocksComeFirstAndStay) {
  // Zigzag, rank 0 of 2: own rows 0 to 255 and 768 to 1023 of 1024.
  const std::vector<Pull> pulls = {pull(kOwnRows, 0, 0, 256), pull(0, 0, 256, 512),
                                   pull(kOwnRows, 256, 768, 256)};
  const std::vector<PlacedTile> tiles = {placed(0, 256), placed(0, 1024)};
  const PullWork work = make_pull_work(tiles, pulls, kShape);
  EXPECT_EQ(work.turns, (std::vector<Turn>{{0, 0}, {6, 2}}));
  EXPECT_EQ(work.places, (std::vector<int32_t>{0, 128, 0, 128, -1, -1, -1, -1, 256, 384}));
  for (const int tensor : {0, 1}) {
    const auto rows = moved(work, tensor);
    ASSERT_EQ(rows.size(), 512u);
    for (const auto& [row, source] : rows) EXPECT_EQ(source, (Source{tensor, row - 256}));
  }
}

TEST(HopperPullWork, BlocksStartWhereTheirTileDoesIfTheySeeIt) {
  const std::vector<Pull> pulls = {pull(kOwnRows, 0, 0, 256), pull(0, 0, 256, 512),
                                   pull(kOwnRows, 256, 768, 256)};
  const PullWork work = make_pull_work(std::vector{placed(0, 256), placed(0, 1024)}, pulls, kShape);
  const Block block{.tile = 1};
  EXPECT_EQ(start_of(work, block, {0, 8}), (Start{.block = 6, .row = 256, .place = 2}));
  EXPECT_EQ(start_of(work, block, {1, 6}), (Start{.block = 1, .row = 128, .place = 2}));
  EXPECT_EQ(start_of(work, block, {3, 5}), (Start{.block = 3, .row = -1, .place = 2}));
  EXPECT_EQ(start_of(work, block, {}), Start{}) << "sees no keys";
}

TEST(HopperPullWork, BlocksOfTwoOwnersAreGathered) {
  // The border at row 100 lies inside the first block, that at 300 inside the third.
  const std::vector<Pull> pulls = {pull(0, 7, 0, 100), pull(kOwnRows, 3, 100, 200),
                                   pull(1, 0, 300, 50)};
  const PullWork work = make_pull_work(std::vector{placed(0, 350)}, pulls, kShape);
  EXPECT_EQ(work.places, (std::vector<int32_t>{-1, 31, -1}));
  EXPECT_EQ(work.turns, (std::vector<Turn>{{1, 0}}));
  const auto rows = moved(work, 1);
  EXPECT_EQ(rows.size(), 350u - 128);
  EXPECT_EQ(rows.at(99), (Source{1, 106}));
  EXPECT_EQ(rows.at(100), (Source{5, 3}));  // own V, behind the loans of two lenders
  EXPECT_EQ(rows.at(299), (Source{5, 202}));
  EXPECT_EQ(rows.at(300), (Source{3, 0}));
  EXPECT_EQ(work.units.front().loan / 2, 2) << "the block behind the own one comes first";
}

TEST(HopperPullWork, ALastBlockOfOwnRowsIsReadWhereItLies) {
  const std::vector<Pull> pulls = {pull(1, 0, 0, 128), pull(kOwnRows, 0, 128, 40)};
  const PullWork work = make_pull_work(std::vector{placed(0, 168)}, pulls, kShape);
  EXPECT_EQ(work.places, (std::vector<int32_t>{-1, 0}));
  EXPECT_EQ(moved(work, 0).size(), 128u);
}

TEST(HopperPullWork, TilesShareWhatTheyRead) {
  const std::vector<Pull> pulls = {pull(0, 0, 0, 1000)};
  const std::vector<PlacedTile> tiles = {placed(0, 300), placed(50, 200), placed(0, 0, 0),
                                         placed(600, 400)};
  const PullWork work = make_pull_work(tiles, pulls, kShape);
  EXPECT_EQ(work.turns.size(), 3u) << "a tile without queries has none";
  EXPECT_EQ(moved(work, 0).size(), 700u);
  EXPECT_EQ(work.units.front().dst, 600 * kShape.row_bytes_k) << "the longest tile comes first";
}

TEST(HopperPullWork, PiecesAreFewAndCounted) {
  const std::vector<Pull> pulls = {pull(0, 0, 0, 100'000)};
  const PullWork work = make_pull_work(std::vector{placed(0, 100'000)}, pulls, kShape);
  EXPECT_LT((100'000 - 1) >> work.piece_log2, kMostPieces);
  std::vector<int32_t> counted(kMostPieces, 0);
  for (const PullUnit& unit : work.units) ++counted[static_cast<size_t>(unit.piece)];
  EXPECT_EQ(counted, work.arrived);
}

TEST(HopperPullWork, PullsThatLeaveRowsOutAreRefused) {
  const auto refusal = [](const std::vector<Pull>& pulls) {
    const std::vector<PlacedTile> tiles = {placed(0, 64), placed(64, 64), placed(500, 9, 0)};
    const Status checked = check_pulls(tiles, pulls);
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_EQ(refusal({pull(3, 0, 64, 64), pull(kOwnRows, 0, 0, 64)}), "");
  EXPECT_THAT(refusal({}), HasSubstr("rows [0, 64) of a tile: pull each"));
  EXPECT_THAT(refusal({pull(0, 0, 0, 127)}), HasSubstr("rows [64, 128)"));
  EXPECT_THAT(refusal({pull(0, 0, 0, 40), pull(1, 0, 41, 90)}), HasSubstr("rows [0, 64)"));
  EXPECT_THAT(refusal({pull(0, 0, 0, 65), pull(1, 0, 64, 64)}), HasSubstr("below 65 are taken"));
  EXPECT_THAT(refusal({pull(16, 0, 0, 128)}),
              HasSubstr("of lender 16 to row 0: lenders are 0 to 15"));
  EXPECT_THAT(refusal({pull(-2, 0, 0, 128)}), HasSubstr("lender -2"));
  EXPECT_THAT(refusal({pull(0, -1, 0, 128)}), HasSubstr("from row -1"));
}

TEST(HopperPullWork, OfNothingIsNothing) {
  const PullWork work = make_pull_work(std::vector{placed(0, 0)}, {}, kShape);
  EXPECT_TRUE(work.units.empty());
  EXPECT_TRUE(work.places.empty());
  EXPECT_EQ(work.turns, (std::vector<Turn>{{0, 0}}));
}

}  // namespace
}  // namespace longspan::hopper
