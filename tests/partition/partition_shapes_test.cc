// The shape of each kind of partition, names, and the automatic choice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "longspan/partition.h"

namespace longspan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Problem parsed(std::string_view text) {
  Result<Problem> problem = parse_problem("dtype=f32 heads=1/1 dim=4 " + std::string(text));
  if (!problem.ok()) throw std::logic_error(problem.error().text());
  return std::move(problem).value();
}

Partition made(const Problem& problem, PartitionKind kind, int ranks) {
  return *Partition::make(problem, kind, ranks);
}

std::vector<std::vector<int64_t>> rows_of(const Problem& problem, PartitionKind kind, int ranks) {
  const Partition partition = made(problem, kind, ranks);
  std::vector<std::vector<int64_t>> rows;
  for (int rank = 0; rank < ranks; ++rank) rows.push_back(partition.q_indices(problem, rank));
  return rows;
}

TEST(PartitionShapes, ContiguousCutsEachSequenceInConsecutivePieces) {
  EXPECT_THAT(rows_of(parsed("lengths=7,3"), PartitionKind::kContiguous, 3),
              ElementsAre(ElementsAre(0, 1, 7), ElementsAre(2, 3, 8), ElementsAre(4, 5, 6, 9)));
}

TEST(PartitionShapes, ZigzagPairsEarlyAndLatePieces) {
  EXPECT_THAT(rows_of(parsed("lengths=8"), PartitionKind::kZigzag, 2),
              ElementsAre(ElementsAre(0, 1, 6, 7), ElementsAre(2, 3, 4, 5)));
  const Partition partition = made(parsed("lengths=12,12"), PartitionKind::kZigzag, 3);
  EXPECT_THAT(partition.q(0).runs,
              ElementsAre(longspan::Run{0, 0, {0, 2}, 2}, longspan::Run{2, 0, {10, 12}, 2},
                          longspan::Run{4, 1, {0, 2}, 2}, longspan::Run{6, 1, {10, 12}, 2}));
  EXPECT_THAT(partition.q(2).runs,
              ElementsAre(longspan::Run{0, 0, {4, 8}, 4}, longspan::Run{4, 1, {4, 8}, 4}))
      << "the two pieces in the middle are one run";
  EXPECT_EQ(partition.q(0).batch, 2);
}

TEST(PartitionShapes, ZigzagGivesEqualCausalWork) {
  const Problem problem = parsed("lengths=64 mask=causal");
  const Partition partition = made(problem, PartitionKind::kZigzag, 4);
  for (int rank = 0; rank < 4; ++rank) {
    int64_t pairs = 0;
    for (const int64_t q : partition.q_positions(rank)) pairs += q + 1;
    EXPECT_EQ(pairs * 4, problem.visible_pairs());
  }
}

TEST(PartitionShapes, StripedDealsTokensInTurn) {
  const Problem problem = parsed("lengths=5,2 padded=6,2 kv_padded=6,2");
  EXPECT_THAT(rows_of(problem, PartitionKind::kStriped, 3),
              ElementsAre(ElementsAre(0, 3, 6), ElementsAre(1, 4, 7), ElementsAre(2, 5)));
  const Partition partition = made(problem, PartitionKind::kStriped, 3);
  EXPECT_THAT(partition.q(2).runs, ElementsAre(longspan::Run{0, 0, {2, 8, 3}, 1}));
  EXPECT_THAT(partition.q(0).runs,
              ElementsAre(longspan::Run{0, 0, {0, 6, 3}, 2}, longspan::Run{2, 1, {0, 3, 3}, 1}));
}

TEST(PartitionShapes, BalancedCutsWhereTheAreaIsEqual) {
  // Areas 100 and 4 x 25: half of all pairs is the first sequence alone.
  EXPECT_THAT(rows_of(parsed("lengths=10,5,5,5,5"), PartitionKind::kBalanced, 2),
              ElementsAre(testing::SizeIs(10), testing::SizeIs(20)));
  // Causal: the first of two ranks takes more queries.
  const auto rows = rows_of(parsed("lengths=100 mask=causal"), PartitionKind::kBalanced, 2);
  EXPECT_EQ(rows[0].size(), 71u);
  EXPECT_EQ(rows[1].size(), 29u);
}

TEST(PartitionShapes, BalancedKeepsPaddingAndUnusedRowsTogether) {
  const Problem problem = parsed("lengths=4,4 padded=6,7 kv_padded=6,7 tokens=16 kv_tokens=15");
  const Partition partition = made(problem, PartitionKind::kBalanced, 2);
  EXPECT_THAT(partition.q(0).runs, ElementsAre(longspan::Run{0, 0, {0, 6}, 4}));
  EXPECT_THAT(partition.q(1).runs,
              ElementsAre(longspan::Run{0, 1, {0, 7}, 4}, longspan::Run{7, 2, {0, 3}, 0}));
  EXPECT_THAT(partition.k(1).runs,
              ElementsAre(longspan::Run{0, 1, {0, 7}, 4}, longspan::Run{7, 2, {0, 2}, 0}));
}

TEST(PartitionShapes, BalancedCutsKeysInProportion) {
  const Problem problem = parsed("lengths=10 kv_lengths=30");
  const Partition partition = made(problem, PartitionKind::kBalanced, 2);
  EXPECT_THAT(partition.q(0).runs, ElementsAre(longspan::Run{0, 0, {0, 5}, 5}));
  EXPECT_THAT(partition.k(0).runs, ElementsAre(longspan::Run{0, 0, {0, 15}, 15}));
}

TEST(PartitionShapes, WithoutVisiblePairsAllRowsHaveAnOwner) {
  const Problem problem = parsed("lengths=5,0 kv_lengths=0,4");
  const Partition partition = made(problem, PartitionKind::kBalanced, 3);
  EXPECT_EQ(partition.q(0).rows + partition.q(1).rows + partition.q(2).rows, 5);
  EXPECT_EQ(partition.k(0).rows + partition.k(1).rows + partition.k(2).rows, 4);
}

TEST(PartitionShapes, RanksMayOwnNothing) {
  for (const PartitionKind kind : {PartitionKind::kContiguous, PartitionKind::kZigzag,
                                   PartitionKind::kStriped, PartitionKind::kBalanced}) {
    const auto rows = rows_of(parsed("lengths=3 mask=causal"), kind, 4);
    const auto none =
        std::count_if(rows.begin(), rows.end(), [](const auto& r) { return r.empty(); });
    EXPECT_GE(none, 1) << name(kind);
    EXPECT_THAT(rows_of(parsed("lengths=0"), kind, 2), ElementsAre(IsEmpty(), IsEmpty()));
  }
}

TEST(PartitionShapes, BatchesStayBatchesWhereEverySequenceGivesEqualRows) {
  const Problem even = parsed("lengths=8,8,8");
  for (const PartitionKind kind :
       {PartitionKind::kContiguous, PartitionKind::kZigzag, PartitionKind::kStriped}) {
    EXPECT_EQ(made(even, kind, 3).q(1).batch, 3) << name(kind);
    EXPECT_EQ(made(parsed("lengths=8,8,8 layout=thd"), kind, 3).q(1).batch, 1) << name(kind);
  }
  EXPECT_EQ(made(parsed("lengths=8,5,0 padded=8,8,8 kv_padded=8,8,8"), PartitionKind::kStriped, 2)
                .q(1)
                .batch,
            3)
      << "extents count, not lengths";
  const Partition balanced = made(even, PartitionKind::kBalanced, 3);
  EXPECT_EQ(balanced.q(0).batch, 1);
  EXPECT_EQ(balanced.q(0).rows, 8);
}

TEST(PartitionShapes, LongestSequencesDoNotOverflow) {
  const Problem problem = parsed("lengths=2147483648 mask=causal");
  for (const PartitionKind kind : {PartitionKind::kContiguous, PartitionKind::kZigzag,
                                   PartitionKind::kStriped, PartitionKind::kBalanced}) {
    const Partition partition = made(problem, kind, 1000);
    int64_t rows = 0;
    for (int rank = 0; rank < 1000; ++rank) rows += partition.q(rank).rows;
    EXPECT_EQ(rows, kMaxTokens) << name(kind);
  }
}

TEST(PartitionShapes, RanksMustBePositive) {
  for (const int ranks : {0, -1, std::numeric_limits<int>::min()}) {
    const Result<Partition> result =
        Partition::make(parsed("lengths=4"), PartitionKind::kZigzag, ranks);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message, HasSubstr("ranks " + std::to_string(ranks)));
    EXPECT_THAT(result.error().message, HasSubstr("at least 1"));
  }
}

TEST(PartitionNames, ParseAndPrint) {
  for (const PartitionKind kind : {PartitionKind::kContiguous, PartitionKind::kZigzag,
                                   PartitionKind::kStriped, PartitionKind::kBalanced}) {
    EXPECT_EQ(*parse_partition(name(kind)), kind);
  }
  for (const std::string text : {"", "auto", "Zigzag", "stripes"}) {
    const auto result = parse_partition(text);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message, "unknown partition \"" + text +
                                          "\"; one of auto, contiguous, zigzag, striped, balanced");
  }
}

TEST(PartitionChoice, FollowsMaskAndLengthsAndSaysWhy) {
  const PartitionChoice causal = choose_partition(parsed("lengths=4096 mask=causal"), 4);
  EXPECT_EQ(causal.kind, PartitionKind::kZigzag);
  EXPECT_THAT(causal.reason, HasSubstr("causal"));
  EXPECT_EQ(choose_partition(parsed("lengths=4096 mask=causal window=900,0"), 4).kind,
            PartitionKind::kContiguous);
  EXPECT_EQ(choose_partition(parsed("lengths=4096 mask=causal window=1100,0"), 4).kind,
            PartitionKind::kZigzag);
  EXPECT_EQ(choose_partition(parsed("lengths=4096 mask=causal chunk=512"), 4).kind,
            PartitionKind::kContiguous);
  const PartitionChoice none = choose_partition(parsed("lengths=4096"), 4);
  EXPECT_EQ(none.kind, PartitionKind::kContiguous);
  EXPECT_THAT(none.reason, HasSubstr("no mask"));
  const Problem packed = parsed("lengths=100,200,150 mask=causal");
  const PartitionChoice balanced = choose_partition(packed, 4);
  EXPECT_EQ(balanced.kind, PartitionKind::kBalanced);
  EXPECT_THAT(balanced.reason, HasSubstr("3 sequences of 150 tokens on average"));
  EXPECT_EQ(choose_partition(packed, 1).kind, PartitionKind::kZigzag);
  EXPECT_EQ(choose_partition(parsed("lengths=4096,4096 mask=causal"), 2).kind,
            PartitionKind::kZigzag);
  EXPECT_EQ(choose_partition(parsed("lengths=0,0 mask=causal"), 2).kind, PartitionKind::kBalanced);
}

}  // namespace
}  // namespace longspan
