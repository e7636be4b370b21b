// Which kernel a call gets.
#include "providers/hopper/heuristics.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "providers/hopper/backward/kernels.h"
#include "providers/hopper/forward/kernels.h"

namespace longspan::hopper {
namespace {

constexpr int kMultiprocessors = 132;
constexpr Band kFull;
constexpr Band kCausal{-kUnbounded, 0};

PlacedTile placed(int64_t nq, int64_t nk, Band band) {
  return {.tile = {.q = {0, nq, 1}, .k = {0, nk, 1}, .band = band}};
}

Shape shape_of(int64_t dim, int64_t rows, Band band, int64_t heads = 16) {
  const std::vector<PlacedTile> tiles = {placed(rows, rows, band)};
  return choose_shape({.heads_q = heads, .dim_qk = dim, .dim_v = dim}, tiles, kMultiprocessors);
}

TEST(HopperHeuristics, NarrowerHeadsArePadded) {
  EXPECT_EQ(narrowest_shape(8, 8), Shape::kD64Keys96);
  EXPECT_EQ(narrowest_shape(64, 72), Shape::kD96);
  EXPECT_EQ(narrowest_shape(104, 8), Shape::kD128);
  EXPECT_EQ(narrowest_shape(192, 128), Shape::kD192V128);
  EXPECT_EQ(narrowest_shape(136, 8), Shape::kD192V128);
  EXPECT_EQ(narrowest_shape(192, 136), Shape::kD192);
  EXPECT_EQ(narrowest_shape(128, 192), Shape::kD192);
  EXPECT_EQ(narrowest_shape(256, 256), Shape::kD256);
  EXPECT_EQ(narrowest_shape(264, 264), Shape::kD320);
  EXPECT_EQ(narrowest_shape(384, 8), Shape::kD384);
  EXPECT_EQ(narrowest_shape(8, 448), Shape::kD448);
  EXPECT_EQ(narrowest_shape(456, 456), Shape::kD512);
  for (const int64_t dim : {64, 96, 128, 192, 256, 320, 384, 448, 512}) {
    EXPECT_EQ(extents(shape_of(dim, 1000, kCausal)).dim, dim);
  }
}

TEST(HopperHeuristics, SixtyFourColumnsByHowManyBlocksThereAre) {
  EXPECT_EQ(shape_of(64, 8192, kFull), Shape::kD64Keys160);     // 43 x 16 blocks: 5.2 waves
  EXPECT_EQ(shape_of(64, 8192, kFull, 32), Shape::kD64Keys96);  // 10.4 waves
  EXPECT_EQ(shape_of(64, 8192, kCausal), Shape::kD64Keys96);
  EXPECT_EQ(shape_of(64, 128, kCausal, 1), Shape::kD64Keys96);
}

TEST(HopperHeuristics, TermsHaveOneShapeOfSixtyFourColumns) {
  const std::vector<PlacedTile> tiles = {placed(1000, 1000, kFull)};
  TileProblem p{.heads_q = 1, .dim_qk = 64, .dim_v = 64};
  EXPECT_EQ(choose_shape(p, tiles, kMultiprocessors), Shape::kD64Keys160);
  for (bool Features::*const term :
       {&Features::softcap, &Features::alibi, &Features::dropout, &Features::max_logit}) {
    p.features = {};
    p.features.*term = true;
    EXPECT_EQ(choose_shape(p, tiles, kMultiprocessors), Shape::kD64Keys96);
  }
}

void expect_fits(const Kernel& kernel, Shape shape, const Features& features) {
  const Extents most = extents(shape);
  EXPECT_EQ(kernel.rows, most.rows);
  EXPECT_LE(kernel.keys, most.keys);
  EXPECT_TRUE(kernel.keys == most.keys || has_terms(features));
  EXPECT_EQ(kernel.q.blocks, (most.dim + 63) / 64);
  EXPECT_LE(kernel.v.blocks, (most.dim_v + 63) / 64);
  EXPECT_LE(kernel.shared_bytes, 232448);
  EXPECT_EQ(kernel.stages_o, features.whole && most.dim <= 128);
}

/// What is said of a shape is what was compiled for it: for each type and kind of results, without
/// and with terms.
TEST(HopperHeuristics, EveryShapeHasItsKernels) {
  std::set<const void*> entries;
  int wanted = 0;
  for (int i = 0; i < kShapes; ++i) {
    const auto shape = static_cast<Shape>(i);
    for (const bool terms : {false, true}) {
      if (terms && shape == Shape::kD64Keys160) continue;
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        for (const bool whole : {false, true}) {
          const Features features{.softcap = terms, .whole = whole};
          const Kernel& kernel = kernel_of(shape, dtype, features);
          expect_fits(kernel, shape, features);
          entries.insert(kernel.entry);
          ++wanted;
        }
      }
    }
  }
  EXPECT_EQ(entries.size(), static_cast<size_t>(wanted));
}

TEST(HopperHeuristics, BackwardHasItsKernels) {
  std::set<const void*> entries;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool terms : {false, true}) entries.insert(score_kernel(dtype, terms).entry);
    entries.insert(value_kernel(dtype).entry);
    for (const auto& [dim_qk, dim_v] : {std::pair{192, 192}, {192, 128}, {256, 256}}) {
      entries.insert(gradient_kernel(gradient_columns(dim_qk, dim_v), dtype).entry);
    }
  }
  EXPECT_EQ(entries.size(), 12u);
  EXPECT_EQ(entries.count(nullptr), 0u);
}

TEST(HopperHeuristics, SomeShapesHaveKernelsWhoseHeadsShareBlocks) {
  std::set<const void*> entries;
  for (const Shape shape : {Shape::kD64Keys96, Shape::kD192, Shape::kD256}) {
    ASSERT_TRUE(may_share(shape));
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const Features whole{.whole = true};
      expect_fits(sharing_kernel_of(shape, dtype), shape, whole);
      entries.insert(sharing_kernel_of(shape, dtype).entry);
      entries.insert(kernel_of(shape, dtype, whole).entry);
    }
  }
  EXPECT_EQ(entries.size(), 12u);
}

TEST(HopperHeuristics, HeadsOfOneKeyHeadShareBlocks) {
  struct Heads {
    int64_t q, group, offset;
    int expected;
  };
  const PlacedTile tile = placed(2048, 2048, kCausal);
  for (const Heads h : {Heads{32, 4, 0, 4},
                        {16, 1, 0, 1},
                        {16, 2, 0, 2},
                        {16, 16, 0, 4},
                        {6, 3, 0, 1},
                        {24, 12, 0, 4},
                        {4, 8, 2, 2},  // parts of groups
                        {3, 8, 0, 1},
                        {4, 8, 1, 1}}) {
    const TileProblem p{
        .heads_q = h.q, .group = h.group, .group_offset = h.offset, .features = {.whole = true}};
    EXPECT_EQ(block_heads(p, {&tile, 1}, Shape::kD64Keys96), h.expected)
        << h.q << " " << h.group << " " << h.offset;
  }
}

TEST(HopperHeuristics, HeadsShareBlocksWhereThatSavesKeys) {
  TileProblem p{.heads_q = 32, .group = 4, .features = {.whole = true}};
  const auto shared = [&](int64_t length, Band band, Shape shape) {
    const PlacedTile tile = placed(length, length, band);
    return block_heads(p, {&tile, 1}, shape);
  };
  constexpr Band kWindow{-1024, 0};
  EXPECT_EQ(shared(8192, kCausal, Shape::kD64Keys96), 4);   // 1849 steps a head, 1892 apart
  EXPECT_EQ(shared(32768, kCausal, Shape::kD64Keys96), 1);  // 29241 of 29412
  EXPECT_EQ(shared(32768, kWindow, Shape::kD64Keys96), 4);  // 2016 of 2187
  EXPECT_EQ(shared(32768, kWindow, Shape::kD256), 4);
  EXPECT_EQ(shared(8192, kFull, Shape::kD64Keys96), 1);  // the last block alone saves some
  EXPECT_EQ(shared(100, kFull, Shape::kD192), 1);        // one block holds all
  EXPECT_EQ(shared(1000, kCausal, Shape::kD128), 1);     // no kernel
  p.features.whole = false;
  EXPECT_EQ(shared(32768, kWindow, Shape::kD64Keys96), 1);
  p.features = {.alibi = true, .whole = true};
  EXPECT_EQ(shared(32768, kWindow, Shape::kD64Keys96), 1);
}

TEST(HopperHeuristics, SectionsOfHeads) {
  const TileProblem p{.heads_q = 32, .heads_kv = 8, .group = 4, .dim_qk = 128, .dim_v = 128};
  EXPECT_EQ(section_heads(p, {.keys = 8192, .even = true}), 4);
  EXPECT_EQ(section_heads(p, {.keys = 8192}), 32);     // 8 x 4 MiB
  EXPECT_EQ(section_heads(p, {.keys = 4 * 8192}), 8);  // 2 x 16 MiB
  EXPECT_EQ(section_heads(p, {.keys = 1 << 20}), 4);   // one key head at least
  EXPECT_EQ(section_heads(p, {}), 32);
  const TileProblem part{.heads_q = 3, .heads_kv = 1, .group = 8, .dim_qk = 64, .dim_v = 64};
  EXPECT_EQ(section_heads(part, {.keys = 1 << 22, .even = true}), 3);
}

}  // namespace
}  // namespace longspan::hopper
