// What a rank is given: its rows, whole sides, pages; and NaN where nothing must be read.
#include "shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "numbers.h"

namespace longspan::tool {
namespace {

Inputs drawn(const std::string& text) {
  auto source = resolve_source(text, "", 3);
  EXPECT_TRUE(source.ok()) << source.error().text();
  auto inputs = make_inputs(*source);
  EXPECT_TRUE(inputs.ok()) << inputs.error().text();
  return *std::move(inputs);
}

Partition contiguous(const Problem& problem, int ranks) {
  auto partition = Partition::make(problem, PartitionKind::kContiguous, ranks);
  EXPECT_TRUE(partition.ok());
  return *std::move(partition);
}

TEST(Shards, BiasOfNoPairIsNaNAndTheInputsStay) {
  const Inputs inputs =
      drawn("dtype=f32 heads=2/1 dim=4 lengths=3,5 kv_lengths=6,2 padded=4,5 bias=1,h");
  const ShardInputs shard = shard_inputs(inputs, contiguous(inputs.problem, 2), 1);
  const TensorView& bias = shard.side.bias;
  for (int64_t q = 0; q < 5; ++q) {
    for (int64_t k = 0; k < 6; ++k) {
      const bool read = (q < 3 && k < 6) || (q < 5 && k < 2);
      EXPECT_EQ(std::isnan(load(bias, q, 1, k)), !read) << q << " " << k;
      const double own = load(inputs.bias.view, q, 1, k);
      EXPECT_EQ(own == 0, !read) << q << " " << k;
      if (read) {
        EXPECT_EQ(load(bias, q, 1, k), own);
      }
    }
  }
}

TEST(Shards, ProblemsWithoutSidesHaveNone) {
  const Inputs inputs = drawn("dtype=f32 heads=2/1 dim=4 lengths=3");
  const SideOperands side = side_operands(inputs);
  for (const TensorView* view : {&side.sink, &side.slopes, &side.bias}) {
    EXPECT_EQ(view->data, nullptr);
  }
  EXPECT_FALSE(side.softcap || side.dropout);
}

/// Row r of a paged view is row r of the keys; what is none is NaN.
void expect_pages(const TensorView& paged, const TensorView& rows, int64_t page) {
  ASSERT_NE(paged.pages, nullptr);
  EXPECT_EQ(paged.seq, page);
  EXPECT_EQ(paged.batch, (rows.rows() + page - 1) / page);
  EXPECT_GT(paged.page_count, paged.batch);  // some are unused
  const std::set<int32_t> used(paged.pages, paged.pages + paged.batch);
  EXPECT_EQ(static_cast<int64_t>(used.size()), paged.batch);
  EXPECT_LT(*used.rbegin(), paged.page_count);
  for (int64_t row = 0; row < paged.rows(); ++row) {
    for (int64_t head = 0; head < paged.heads; ++head) {
      const double value = load(paged, row, head, paged.dim - 1);
      if (row >= rows.rows()) {
        EXPECT_TRUE(std::isnan(value)) << row;
      } else {
        EXPECT_EQ(value, load(rows, row, head, paged.dim - 1)) << row;
      }
    }
  }
  const int64_t elements = paged.page_count * page * paged.heads * paged.dim;
  int64_t numbers = 0;
  for (int64_t i = 0; i < elements; ++i) numbers += !std::isnan(load(paged.data, paged.dtype, i));
  EXPECT_EQ(numbers, rows.rows() * rows.heads * rows.dim);
}

TEST(Shards, PagedKeysAndValues) {
  const Inputs inputs = drawn("dtype=bf16 heads=4/2 dim=4 dim_v=3 lengths=64 page=4");
  const Partition partition = contiguous(inputs.problem, 3);
  for (int rank = 0; rank < 3; ++rank) {
    const ShardInputs shard = shard_inputs(inputs, partition, rank);
    const std::vector<int64_t> rows = partition.k_indices(inputs.problem, rank);
    const auto own = [&](const char* name, const Tensor& whole) {
      Tensor tensor =
          shard_tensor(inputs.problem, tensor_spec(inputs.problem, name), partition.k(rank));
      scatter_rows(whole.view, tensor.view, rows);
      return tensor;
    };
    expect_pages(shard.k, own("k", inputs.k).view, 4);
    expect_pages(shard.v, own("v", inputs.v).view, 4);
    EXPECT_NE(shard.k.pages, shard.v.pages);
    EXPECT_FALSE(std::equal(shard.k.pages, shard.k.pages + shard.k.batch, shard.v.pages));
    EXPECT_GT(shard.v.stride_head, shard.v.stride_seq);  // [page, head, token, dim]
    EXPECT_LT(shard.k.stride_head, shard.k.stride_seq);  // [page, token, head, dim]
  }
}

}  // namespace
}  // namespace longspan::tool
