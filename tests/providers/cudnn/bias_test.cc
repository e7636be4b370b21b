// How a bias divides executions: entries, heads, memory.
#include "providers/cudnn/bias.h"

#include <gtest/gtest.h>

#include <vector>

#include "providers/cudnn/budget.h"
#include "providers/cudnn/heads.h"
#include "providers/cudnn/plan.h"
#include "providers/cudnn/tiles.h"

namespace longspan::cudnn {
namespace {

constexpr Direction kBoth[] = {Direction::kForward, Direction::kBackward};

TileProblem biased(Direction direction, int64_t rows_q, int64_t rows_k, Bias kind) {
  TileProblem p = problem(direction, rows_q, rows_k);
  p.features.bias = kind;
  return p;
}

TEST(CudnnBias, EveryEntryIsAGroup) {
  for (const Direction direction : kBoth) {
    const TileProblem p = biased(direction, 80, 80, Bias::k1H);
    const auto groups = make_groups(p, pack({10, 10, 20, 40}, {10, 10, 20, 40}, true));
    ASSERT_EQ(groups.size(), 4u);
    for (const Group& g : groups) {
      EXPECT_FALSE(g.ragged);
      EXPECT_EQ(g.batch, 1);
      EXPECT_EQ(g.mask, (Mask{.right = 0}));
      EXPECT_EQ(bias_shape(p, g), (BiasShape{4, g.sq}));
    }
  }
}

TEST(CudnnBias, EntriesKnowTheirTokens) {
  for (const Direction direction : kBoth) {
    const TileProblem p = biased(direction, 50, 90, Bias::kBH);
    PlacedTile tile = placed(3, 40, 7, 80, {20, 45});
    tile.tile.sequence = 2;
    for (const Group& g : make_groups(p, std::vector{tile})) {
      ASSERT_EQ(g.entries.size(), 1u);
      const Entry& e = g.entries[0];
      EXPECT_EQ(e.tokens.sequence, 2);
      EXPECT_EQ(e.tokens.q_begin, 10 + 3 * (e.q_row - 3));
      EXPECT_EQ(e.tokens.q_stride, 3);
      EXPECT_EQ(e.tokens.k_begin, 2 * (e.k_row - 7));
      EXPECT_EQ(e.tokens.k_stride, 2);
      // A pair of the tile is seen by the entry as it is by the tile.
      for (int64_t i = 0; i < e.nq; ++i) {
        for (int64_t j = 0; j < e.nk; ++j) {
          const bool seen = e.tokens.lo <= j - i && j - i <= e.tokens.hi;
          EXPECT_EQ(seen, tile.tile.band.sees(e.q_row - 3 + i, e.k_row - 7 + j)) << i << ", " << j;
        }
      }
    }
  }
}

TEST(CudnnBias, ForwardCountsFromTheTopLeft) {
  const auto groups =
      make_groups(biased(Direction::kForward, 40, 90, Bias::k11), pack({10, 20}, {15, 70}, true));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].mask, (Mask{.right = 5}));
  EXPECT_EQ(groups[1].mask, (Mask{.right = 50}));
}

TEST(CudnnBias, OneRowAgainstOneKeyIsDeclaredLonger) {
  const TileProblem p = biased(Direction::kBackward, 1, 1, Bias::k11);
  const auto groups = make_groups(p, std::vector{placed(0, 1, 0, 1, {})});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_TRUE(groups[0].ragged);
  EXPECT_EQ(bias_shape(p, groups[0]), (BiasShape{1, 128}));
  EXPECT_GE(bias_bytes(p), 128 * 128 * 2);
  EXPECT_GE(dbias_bytes(p), 4 * 128 * 128 * 2);
  EXPECT_LE(cudnn_bytes(p, groups[0]).total(), cudnn_budget(p));
}

TEST(CudnnBias, BytesCoverThePackedBias) {
  for (const Bias kind : {Bias::k11, Bias::kB1, Bias::k1H, Bias::kBH, Bias::k111S}) {
    for (const Direction direction : kBoth) {
      const TileProblem p = biased(direction, 333, 701, kind);
      for (const Group& g : make_groups(p, std::vector{placed(0, 333, 0, 701, {})})) {
        const GraphKey key = packed_key(p, g, true, 0);
        EXPECT_EQ(key.bias, bias_shape(p, g));
        EXPECT_LE(key.bias.heads * key.bias.rows * bias_width(key.skv) * 2, bias_bytes(p));
        if (direction == Direction::kForward) continue;
        EXPECT_LE(key.heads_q * key.sq * key.skv * 2, dbias_bytes(p));
      }
    }
  }
  EXPECT_EQ(bias_bytes(problem(Direction::kBackward, 300, 300)), 0);
  EXPECT_EQ(dbias_bytes(problem(Direction::kBackward, 300, 300)), 0);
}

TEST(CudnnBias, HeadsAreDividedWhereScoresAreLarge) {
  TileProblem p = biased(Direction::kBackward, 8192, 8192, Bias::k1H);
  p.heads_q = 36;
  p.heads_kv = 12;
  p.group = 3;
  // 128 MiB a query head, 384 MiB a key head: two are within 1 GiB.
  const TileProblem slice = head_slice(p);
  EXPECT_EQ(slice.heads_q, 6);
  EXPECT_EQ(slice.heads_kv, 2);
  EXPECT_LE(slice_bytes(slice), kSliceBytes);
  p.features.bias = Bias::kNone;
  EXPECT_EQ(head_slice(p), p);
  p.features.bias = Bias::k11;
  p.direction = Direction::kForward;  // reads 128 MiB whatever the heads are
  EXPECT_EQ(head_slice(p), p);
}

TEST(CudnnBias, SlicesAreViewsOfTheirHeads) {
  TileProblem slice = biased(Direction::kBackward, 10, 10, Bias::k1H);
  slice.heads_q = 6;
  slice.heads_kv = 2;
  std::vector<uint16_t> memory(10 * 36 * 8);
  BackwardTiles t{.q = packed_view(memory.data(), DType::kBF16, 10, 36, 8),
                  .k = packed_view(memory.data(), DType::kBF16, 10, 12, 8)};
  t.terms.head_begin = 5;
  const BackwardTiles part = slice_of(t, slice, 2);
  EXPECT_EQ(part.q.data, memory.data() + 12 * 8);
  EXPECT_EQ(part.q.heads, 6);
  EXPECT_EQ(part.q.stride_seq, 36 * 8);
  EXPECT_EQ(part.k.data, memory.data() + 4 * 8);
  EXPECT_EQ(part.k.heads, 2);
  EXPECT_EQ(part.terms.head_begin, 17);
  EXPECT_EQ(part.o.data, nullptr);
}

}  // namespace
}  // namespace longspan::cudnn
