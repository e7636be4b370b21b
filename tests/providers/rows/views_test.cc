// Views as threads read them.
#include "providers/rows/views.h"

#include <gtest/gtest.h>

namespace longspan::rows {
namespace {

alignas(16) char memory[16];

TensorView packed(int64_t rows, int64_t heads, int64_t dim) {
  return packed_view(memory, DType::kBF16, rows, heads, dim);
}

TEST(RowsViews, AreReadByRows) {
  TensorView view = packed(50, 2, 64);
  view.batch = 3;
  EXPECT_EQ(row_view(view).seq, 150);
  view.stride_batch += 8;
  const RowView rows = row_view(view);
  EXPECT_EQ(rows.seq, 50);
  EXPECT_EQ(rows.at<uint16_t>(120, 1) - reinterpret_cast<uint16_t*>(memory), view.offset(120, 1));
  EXPECT_TRUE(aligned(view, 16));
  view.stride_head += 4;
  EXPECT_FALSE(aligned(view, 16));
  EXPECT_TRUE(aligned(view, 8));
}

}  // namespace
}  // namespace longspan::rows
