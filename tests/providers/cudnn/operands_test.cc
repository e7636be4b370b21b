// Which tensors of a call cuDNN uses where they are.
#include "providers/cudnn/operands.h"

#include <gtest/gtest.h>

#include <vector>

#include "providers/cudnn/tiles.h"

namespace longspan::cudnn {
namespace {

constexpr int64_t kRows = 400;
constexpr Direction kForward = Direction::kForward;
constexpr Direction kBackward = Direction::kBackward;

alignas(16) std::byte memory[16];  // never read

TensorView view(DType dtype, int64_t heads, int64_t dim) {
  return packed_view(memory, dtype, kRows, heads, dim);
}

TileProblem whole(Direction direction, bool is_whole = true) {
  TileProblem p = problem(direction, kRows, kRows);
  p.features.whole = is_whole;
  return p;
}

ForwardTiles forward_call(const TileProblem& p) {
  const DType results = p.features.whole ? p.dtype : DType::kF32;
  return {.q = view(p.dtype, 4, 128),
          .k = view(p.dtype, 2, 128),
          .v = view(p.dtype, 2, 128),
          .o = view(results, 4, 128),
          .lse = view(DType::kF32, 4, 1)};
}

BackwardTiles backward_call(const TileProblem& p) {
  const DType results = p.features.whole ? p.dtype : DType::kF32;
  return {.q = view(p.dtype, 4, 128),
          .k = view(p.dtype, 2, 128),
          .v = view(p.dtype, 2, 128),
          .dout = view(p.dtype, 4, 128),
          .lse = view(DType::kF32, 4, 1),
          .delta = view(DType::kF32, 4, 1),
          .o = view(p.dtype, 4, 128),
          .dq = view(results, 4, 128),
          .dk = view(results, 2, 128),
          .dv = view(results, 2, 128)};
}

Group group_of(const TileProblem& p, const std::vector<PlacedTile>& tiles) {
  const auto groups = make_groups(p, tiles);
  EXPECT_EQ(groups.size(), 1u);
  return groups.at(0);
}

Group dense(const TileProblem& p) {
  return group_of(p, {placed(0, kRows, 0, kRows, {-kUnbounded, 0})});
}

Group ragged(const TileProblem& p) {
  const std::vector<int64_t> lengths = {60, 70, 33, 1, 100, 90};
  const Group g = group_of(p, pack(lengths, lengths, true));
  EXPECT_TRUE(g.ragged);
  return g;
}

std::vector<Slot> in_scratch(const Operands& operands) {
  std::vector<Slot> result;
  for (size_t i = 0; i < kTensors; ++i) {
    const Operand& o = operands.tensors[i];
    if (o.heads > 0 && !o.in_place) result.push_back(static_cast<Slot>(i));
  }
  return result;
}

using Slots = std::vector<Slot>;

TEST(CudnnOperands, WholeResultsNeedNoScratch) {
  const TileProblem f = whole(kForward);
  const TileProblem b = whole(kBackward);
  EXPECT_EQ(in_scratch(operands_of(f, dense(f), forward_call(f))), Slots());
  EXPECT_EQ(in_scratch(operands_of(f, ragged(f), forward_call(f))), Slots());
  EXPECT_EQ(in_scratch(operands_of(b, dense(b), backward_call(b))), Slots());
  EXPECT_EQ(in_scratch(operands_of(b, ragged(b), backward_call(b))), Slots());
}

TEST(CudnnOperands, CarriedResultsLeaveThroughScratch) {
  const TileProblem f = whole(kForward, false);
  EXPECT_EQ(in_scratch(operands_of(f, dense(f), forward_call(f))), (Slots{Slot::kO, Slot::kStats}));
  const TileProblem b = whole(kBackward, false);
  const Slots gradients = {Slot::kDq, Slot::kDk, Slot::kDv};
  EXPECT_EQ(in_scratch(operands_of(b, dense(b), backward_call(b))), gradients);
  BackwardTiles call = backward_call(b);
  call.o = {};
  EXPECT_EQ(in_scratch(operands_of(b, dense(b), call)),
            (Slots{Slot::kO, Slot::kDq, Slot::kDk, Slot::kDv}));
}

/// cuDNN adds dq up at the offsets of q.
TEST(CudnnOperands, RaggedQueriesLieAsTheirGradients) {
  const TileProblem carried = whole(kBackward, false);
  const Operands packed = operands_of(carried, ragged(carried), backward_call(carried));
  EXPECT_FALSE(packed[Slot::kQ].in_place);
  EXPECT_EQ(packed[Slot::kQ].strides, packed[Slot::kDq].strides);
  const TileProblem p = whole(kBackward);
  BackwardTiles call = backward_call(p);
  call.q.stride_seq *= 3;  // in a tensor of q, k and v
  const Operands apart = operands_of(p, ragged(p), call);
  EXPECT_FALSE(apart[Slot::kQ].in_place);
  EXPECT_FALSE(apart[Slot::kDq].in_place);
  EXPECT_TRUE(apart[Slot::kO].in_place);
  EXPECT_TRUE(operands_of(p, dense(p), call)[Slot::kQ].in_place);
}

/// Buffers are sized by rows of the graph's heads.
TEST(CudnnOperands, RaggedResultsHaveNoGapsBetweenRows) {
  const TileProblem p = whole(kBackward);
  BackwardTiles call = backward_call(p);
  call.dk.stride_seq += 64;
  call.lse.stride_seq += 1;
  EXPECT_EQ(in_scratch(operands_of(p, ragged(p), call)), (Slots{Slot::kStats, Slot::kDk}));
  EXPECT_EQ(in_scratch(operands_of(p, dense(p), call)), Slots());
}

TEST(CudnnOperands, RaggedTotalsCoverRowsOfOtherGroups) {
  // One long sequence between short ones: two size classes.
  const std::vector<int64_t> lengths = {10, 20, 2000, 30, 40, 50};
  for (const bool is_whole : {false, true}) {
    TileProblem p = problem(kBackward, 2150, 2150);
    p.features.whole = is_whole;
    const auto groups = make_groups(p, pack(lengths, lengths, true));
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_EQ(groups[0].total_q, is_whole ? 2304 : 256);
    EXPECT_EQ(groups[1].total_q, 2048);
  }
}

TEST(CudnnOperands, NegativeScalesCopyQueries) {
  const TileProblem p = whole(kBackward);
  BackwardTiles call = backward_call(p);
  call.scale = -1;
  EXPECT_EQ(in_scratch(operands_of(p, dense(p), call)), (Slots{Slot::kQ, Slot::kDq}));
}

TEST(CudnnOperands, AddedGradientsLeaveThroughScratch) {
  const TileProblem p = whole(kBackward);
  Group g = dense(p);
  g.adds_dq = true;
  EXPECT_EQ(in_scratch(operands_of(p, g, backward_call(p))), (Slots{Slot::kDq}));
}

/// Rows that a bias hides have an LSE of -inf, which cuDNN must not subtract.
TEST(CudnnOperands, StatisticsAreCopiedBesideABias) {
  for (const bool is_whole : {false, true}) {
    TileProblem p = whole(kBackward, is_whole);
    const auto copied = [&] {
      return !operands_of(p, dense(p), backward_call(p))[Slot::kStats].in_place;
    };
    EXPECT_FALSE(copied());
    p.features.bias = Bias::k11;
    EXPECT_TRUE(copied());
  }
}

}  // namespace
}  // namespace longspan::cudnn
