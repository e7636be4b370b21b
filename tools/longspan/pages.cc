#include "pages.h"

#include <cstring>
#include <numeric>
#include <random>
#include <utility>

namespace longspan::tool {
namespace {

/// Which pages of a pool of `pool` hold `used` consecutive pieces.
std::vector<int32_t> drawn_table(int64_t used, int64_t pool, uint64_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(pool));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 engine(seed);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[engine() % i]);
  order.resize(static_cast<size_t>(used));
  return order;
}

void copy_head(const TensorView& from, const TensorView& to, int64_t row, int64_t head) {
  const int64_t size = size_of(from.dtype);
  std::memcpy(static_cast<std::byte*>(to.data) + to.offset(row, head) * size,
              static_cast<const std::byte*>(from.data) + from.offset(row, head) * size,
              static_cast<size_t>(from.dim * size));
}

}  // namespace

PagePool make_pages(const Tensor& tensor, int64_t page, PageLayout layout, uint64_t seed) {
  const TensorView& from = tensor.view;
  const int64_t used = (from.rows() + page - 1) / page;
  const int64_t pool = used + used / 4 + 1;
  const int64_t elements = page * from.heads * from.dim;
  const bool heads_outside = layout == PageLayout::kHeadToken;
  PagePool pages;
  pages.memory = Memory(static_cast<size_t>(pool * elements * size_of(from.dtype)));
  std::memset(pages.memory.data(), 0xff, pages.memory.size());
  pages.table = drawn_table(used, pool, seed);
  pages.view = {.data = pages.memory.data(),
                .dtype = from.dtype,
                .batch = used,
                .seq = page,
                .heads = from.heads,
                .dim = from.dim,
                .stride_batch = elements,
                .stride_seq = heads_outside ? from.dim : from.heads * from.dim,
                .stride_head = heads_outside ? page * from.dim : from.dim,
                .pages = pages.table.data(),
                .page_count = pool};
  for (int64_t row = 0; row < from.rows(); ++row) {
    for (int64_t head = 0; head < from.heads; ++head) copy_head(from, pages.view, row, head);
  }
  return pages;
}

}  // namespace longspan::tool
