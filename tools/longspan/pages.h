// Keys and values in pages, as a server of many requests holds them.
#pragma once

#include <cstdint>
#include <vector>

#include "tensors.h"

namespace longspan::tool {

/// Memory of a pool of pages, and the view that a table makes of it.
struct PagePool {
  Memory memory;
  std::vector<int32_t> table;
  TensorView view;
};

/// Order of the elements of a page.
enum class PageLayout { kTokenHead, kHeadToken };

/// The rows of `tensor`, `page` of them to a page. The pages lie in an order drawn from `seed`,
/// with unused ones among them; what holds no row is NaN.
PagePool make_pages(const Tensor& tensor, int64_t page, PageLayout layout, uint64_t seed);

}  // namespace longspan::tool
