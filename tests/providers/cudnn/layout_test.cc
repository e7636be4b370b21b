// Which tensors cuDNN reads in place, and with which strides.
#include "providers/cudnn/layout.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace longspan::cudnn {
namespace {

alignas(16) std::byte memory[16];  // never read

TensorView view(int64_t batch, int64_t seq, int64_t heads, Strides strides) {
  return {.data = memory,
          .dtype = DType::kBF16,
          .batch = batch,
          .seq = seq,
          .heads = heads,
          .dim = 64,
          .stride_batch = strides.batch,
          .stride_seq = strides.row,
          .stride_head = strides.head};
}

Group dense(std::vector<Entry> entries) {
  Group group{
      .batch = static_cast<int64_t>(entries.size()), .sq = entries[0].nq, .skv = entries[0].nk};
  group.entries = std::move(entries);
  return group;
}

TEST(CudnnLayout, PackedRows) {
  const Group group = dense({{8, 0, 100, 50}});
  const TensorView v = view(1, 200, 4, {200 * 256, 256, 64});
  const Layout layout = layout_of(v, group, false, 4);
  EXPECT_TRUE(layout.direct);
  EXPECT_EQ(layout.strides, (Strides{100 * 256, 256, 64}));
  EXPECT_EQ(layout.strides, packed_entries(group, false, 4, 64));
  EXPECT_EQ(first_element(v, group, false), 8 * 256);
}

TEST(CudnnLayout, BatchesOfEveryOrder) {
  const Group group = dense({{0, 0, 100, 100}, {100, 100, 100, 100}, {200, 200, 100, 100}});
  const TensorView packed = view(1, 300, 4, {300 * 256, 256, 64});
  EXPECT_EQ(layout_of(packed, group, true, 4).strides, packed_entries(group, true, 4, 64));
  const Layout sbhd = layout_of(view(3, 100, 4, {256, 3 * 256, 64}), group, true, 4);
  EXPECT_TRUE(sbhd.direct);
  EXPECT_EQ(sbhd.strides, (Strides{256, 3 * 256, 64}));
  const Layout bhsd = layout_of(view(3, 100, 4, {100 * 256, 64, 100 * 64}), group, true, 4);
  EXPECT_TRUE(bhsd.direct);
  EXPECT_EQ(bhsd.strides, (Strides{100 * 256, 64, 100 * 64}));
}

TEST(CudnnLayout, EntriesAtUnequalDistancesAreCopied) {
  // Two halves of two sequences, which lie a row apart.
  const Group group = dense({{0, 0, 50, 50}, {50, 50, 50, 50}, {100, 100, 50, 50}});
  EXPECT_FALSE(layout_of(view(2, 100, 4, {256, 2 * 256, 64}), group, false, 4).direct);
}

TEST(CudnnLayout, RowsOfTwoBatchEntriesAreCopied) {
  const TensorView apart = view(2, 100, 4, {256, 2 * 256, 64});
  EXPECT_FALSE(layout_of(apart, dense({{90, 0, 20, 20}}), false, 4).direct);
  EXPECT_FALSE(layout_of(apart, dense({{99, 0, 20, 20}}), false, 4).direct);
  EXPECT_TRUE(layout_of(apart, dense({{80, 0, 20, 20}}), false, 4).direct);
  const TensorView adjacent = view(2, 100, 4, {100 * 256, 256, 64});
  EXPECT_TRUE(layout_of(adjacent, dense({{90, 0, 20, 20}}), false, 4).direct);
}

TEST(CudnnLayout, WhatIsNotAlignedIsCopied) {
  const Group group = dense({{0, 0, 10, 10}});
  EXPECT_TRUE(layout_of(view(1, 10, 4, {0, 264, 64}), group, false, 4).direct);
  EXPECT_FALSE(layout_of(view(1, 10, 4, {0, 260, 64}), group, false, 4).direct);
  EXPECT_FALSE(layout_of(view(1, 10, 4, {0, 264, 65}), group, false, 4).direct);
  EXPECT_FALSE(layout_of(view(1, 10, 4, {0, 0, 64}), group, false, 4).direct);
  // The stride of a single head does not matter.
  EXPECT_TRUE(layout_of(view(1, 10, 1, {0, 264, 65}), group, false, 1).direct);
  TensorView shifted = view(1, 10, 4, {0, 256, 64});
  shifted.data = memory + 2;
  EXPECT_FALSE(layout_of(shifted, group, false, 4).direct);
}

TEST(CudnnLayout, OneRowInTheMiddleOfATensor) {
  const Group group = dense({{3, 3, 1, 1}});
  EXPECT_TRUE(layout_of(view(1, 10, 4, {0, 264, 64}), group, false, 4).direct);
  EXPECT_FALSE(layout_of(view(1, 10, 4, {0, 260, 64}), group, false, 4).direct);
}

TEST(CudnnLayout, RaggedEntriesCountFromTheFirstOne) {
  Group group{.ragged = true, .batch = 2, .sq = 128, .skv = 256};
  group.entries = {{3, 5, 1, 10}, {60, 70, 20, 200}};
  const TensorView v = view(1, 300, 4, {0, 512, 64});
  const Layout layout = layout_of(v, group, true, 2);
  EXPECT_TRUE(layout.direct);
  EXPECT_EQ(layout.strides, (Strides{256 * 512, 512, 64}));
  EXPECT_EQ(first_element(v, group, true), 5 * 512);
  EXPECT_EQ(packed_entries(group, true, 2, 64), (Strides{256 * 128, 128, 64}));
}

TEST(CudnnLayout, StatisticsLieAnywhere) {
  TensorView lse = view(1, 300, 4, {0, 9, 2});
  lse.dtype = DType::kF32;
  lse.dim = 1;
  const Group group = dense({{3, 0, 100, 50}});
  const Layout layout = layout_of(lse, group, false, 4);
  EXPECT_TRUE(layout.direct);
  EXPECT_EQ(layout.strides, (Strides{900, 9, 2}));
  lse.data = memory + 2;
  EXPECT_FALSE(layout_of(lse, group, false, 4).direct);
}

}  // namespace
}  // namespace longspan::cudnn
