// Which views TMA can read.
#include "providers/hopper/maps.h"

#include <gtest/gtest.h>

namespace longspan::hopper {
namespace {

alignas(16) char memory[16];

TensorView packed(int64_t rows, int64_t heads, int64_t dim) {
  return packed_view(memory, DType::kBF16, rows, heads, dim);
}

TEST(HopperMaps, AlignedRowsAreMappable) {
  EXPECT_TRUE(mappable(packed(100, 4, 72)));
  TensorView view = packed(100, 4, 64);
  view.data = memory + 2;
  EXPECT_FALSE(mappable(view));
  view = packed(100, 4, 64);
  view.stride_seq += 4;
  EXPECT_FALSE(mappable(view));
  view = packed(100, 4, 64);
  view.stride_head = 0;
  EXPECT_FALSE(mappable(view));
  view.heads = 1;  // whose stride is not used
  EXPECT_TRUE(mappable(view));
  EXPECT_FALSE(mappable(packed(0, 4, 64)));
}

TEST(HopperMaps, RowsOfEvenViewsCrossNothing) {
  TensorView view = packed(50, 2, 64);
  view.batch = 3;
  EXPECT_TRUE(even(view));
  EXPECT_FALSE(crosses(view, 40, 60));
  view.stride_batch += 64;
  EXPECT_FALSE(even(view));
  EXPECT_TRUE(crosses(view, 40, 60));
  EXPECT_FALSE(crosses(view, 50, 100));
  EXPECT_FALSE(crosses(view, 60, 60));
}

}  // namespace
}  // namespace longspan::hopper
