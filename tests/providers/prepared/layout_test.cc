// Which rows engines are given where they are.
#include "providers/prepared/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace longspan::prepared {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kHeads = 4, kDim = 16;
alignas(64) uint16_t memory[1 << 16];

TensorView view(int64_t batch = 1, int64_t seq = 100) {
  TensorView v = packed_view(memory, DType::kBF16, seq, kHeads, kDim);
  v.batch = batch;
  return v;
}

Launch launch(const std::vector<rows::Entry>& entries, bool packed = false) {
  return {.packed = packed, .entries = entries};
}

rows::Entry rows(int64_t first, int64_t count) {
  return {.q_row = first, .k_row = first, .nq = count, .nk = count};
}

std::optional<Operand> place(const TensorView& v, const Launch& l) {
  return in_place(v, l, {.heads = kHeads, .dim = kDim});
}

TEST(PreparedLayout, RowsOfOneEntry) {
  const auto o = place(view(), launch({rows(10, 20)}));
  ASSERT_TRUE(o.has_value());
  EXPECT_EQ(o->data, memory + 10 * kHeads * kDim);
  EXPECT_EQ(o->rank, 4);
  EXPECT_THAT(o->shape, ElementsAre(1, 20, kHeads, kDim));
  EXPECT_THAT(o->strides, ElementsAre(20 * 64, 64, 16, 1));
}

TEST(PreparedLayout, EntriesAtEqualDistances) {
  const auto o = place(view(), launch({rows(0, 20), rows(30, 20), rows(60, 20)}));
  ASSERT_TRUE(o.has_value());
  EXPECT_THAT(o->shape, ElementsAre(3, 20, kHeads, kDim));
  EXPECT_EQ(o->strides[0], 30 * 64);
  EXPECT_FALSE(place(view(), launch({rows(0, 20), rows(30, 20), rows(61, 20)})).has_value());
}

TEST(PreparedLayout, PackedRowsMustFollowEachOther) {
  const auto o = place(view(), launch({rows(5, 20), rows(25, 7)}, true));
  ASSERT_TRUE(o.has_value());
  EXPECT_EQ(o->rank, 3);
  EXPECT_EQ(o->shape[0], 27);
  EXPECT_EQ(o->strides[0], 64);
  EXPECT_FALSE(place(view(), launch({rows(5, 20), rows(26, 7)}, true)).has_value());
}

TEST(PreparedLayout, SequencesOutermost) {
  TensorView v = view(2, 50);
  v.stride_seq = 2 * 64;
  v.stride_batch = 64;  // [seq, batch, heads, dim]
  const auto o = place(v, launch({rows(0, 50), rows(50, 50)}));
  ASSERT_TRUE(o.has_value());
  EXPECT_THAT(o->strides, ElementsAre(64, 128, 16, 1));
  // An entry over the end of a batch entry has rows in two steps.
  EXPECT_FALSE(place(v, launch({rows(40, 20)})).has_value());
}

TEST(PreparedLayout, SixteenBytesAtATime) {
  TensorView v = view();
  v.data = memory + 1;
  EXPECT_FALSE(place(v, launch({rows(0, 20)})).has_value());
  v = view();
  v.stride_seq = 68;
  v.stride_batch = 68 * 100;
  EXPECT_FALSE(place(v, launch({rows(0, 20)})).has_value());
  v.stride_seq = 72;
  v.stride_batch = 72 * 100;
  EXPECT_TRUE(place(v, launch({rows(0, 20)})).has_value());
  v.stride_head = 20;
  EXPECT_FALSE(place(v, launch({rows(0, 20)})).has_value());
}

TEST(PreparedLayout, WiderTypesAreNotGiven) {
  EXPECT_FALSE(place(packed_view(memory, DType::kF32, 100, kHeads, kDim), launch({rows(0, 20)}))
                   .has_value());
  EXPECT_FALSE(place({}, launch({rows(0, 20)})).has_value());
}

TensorView statistics(int64_t batch = 1, int64_t seq = 100) {
  TensorView v = packed_view(memory, DType::kF32, seq, kHeads, 1);
  v.batch = batch;
  return v;
}

TEST(PreparedLayout, StatisticsOfEntries) {
  const auto one = statistics_in_place(statistics(), launch({rows(10, 20)}));
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->data, reinterpret_cast<float*>(memory) + 10 * kHeads);
  EXPECT_EQ(one->element, Element::kF32);
  EXPECT_EQ(one->rank, 3);
  EXPECT_THAT(one->shape, ElementsAre(1, kHeads, 20, 0));
  EXPECT_THAT(one->strides, ElementsAre(80, 1, 4, 0));
  const auto three =
      statistics_in_place(statistics(), launch({rows(0, 20), rows(30, 20), rows(60, 20)}));
  ASSERT_TRUE(three.has_value());
  EXPECT_THAT(three->shape, ElementsAre(3, kHeads, 20, 0));
  EXPECT_THAT(three->strides, ElementsAre(120, 1, 4, 0));
  const auto packed = statistics_in_place(statistics(), launch({rows(5, 20), rows(25, 7)}, true));
  ASSERT_TRUE(packed.has_value());
  EXPECT_EQ(packed->rank, 2);
  EXPECT_THAT(packed->shape, ElementsAre(kHeads, 27, 0, 0));
  EXPECT_THAT(packed->strides, ElementsAre(1, 4, 0, 0));
}

TEST(PreparedLayout, StatisticsThatAreNotUsedWhereTheyAre) {
  const Launch whole = launch({rows(0, 100)});
  EXPECT_TRUE(statistics_in_place(statistics(), whole).has_value());
  EXPECT_FALSE(statistics_in_place({}, whole).has_value());
  TensorView v = statistics();
  v.stride_head = 100;  // the rows of a head side by side
  v.stride_seq = 1;
  EXPECT_FALSE(statistics_in_place(v, whole).has_value());
  v = statistics();
  v.dtype = DType::kF64;
  EXPECT_FALSE(statistics_in_place(v, whole).has_value());
  EXPECT_FALSE(
      statistics_in_place(statistics(), launch({rows(0, 20), rows(30, 20), rows(61, 20)})));
  EXPECT_FALSE(statistics_in_place(statistics(), launch({rows(5, 20), rows(26, 7)}, true)));
}

TEST(PreparedLayout, StatisticsInScratchMemoryAreDense) {
  const Operand o = statistics_in_scratch(memory, launch({rows(5, 20), rows(90, 20)}), 2);
  EXPECT_THAT(o.shape, ElementsAre(2, 2, 20, 0));
  EXPECT_THAT(o.strides, ElementsAre(40, 1, 2, 0));
}

TEST(PreparedLayout, ScratchMemoryIsDense) {
  const Operand o = in_scratch(memory, Element::kF16, launch({rows(5, 20), rows(90, 20)}),
                               {.heads = 2, .dim = 24});
  EXPECT_THAT(o.shape, ElementsAre(2, 20, 2, 24));
  EXPECT_THAT(o.strides, ElementsAre(960, 48, 24, 1));
}

}  // namespace
}  // namespace longspan::prepared
