// Tensors in pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "providers/support.h"

namespace longspan::testing {

/// Rows of `whole` in shuffled pages of a pool with unused ones. What holds no row is NaN.
struct Paged {
  Paged(const Tensor& whole, int64_t page, Memory memory, const std::vector<int32_t>& pages)
      : table(pages),
        pool({.dtype = whole.shape().dtype,
              .rows = static_cast<int64_t>(pages.size()) * page,
              .heads = whole.shape().heads,
              .dim = whole.shape().dim,
              .memory = memory,
              .batch = static_cast<int64_t>(pages.size())}) {
    const int64_t used = (whole.shape().rows + page - 1) / page;
    view = pool.view();
    view.pages = table.data();
    view.batch = used;
    view.page_count = static_cast<int64_t>(pages.size());
    for (int64_t row = 0; row < whole.shape().rows; ++row) {
      const int64_t to = table[static_cast<size_t>(row / page)] * page + row % page;
      for (int64_t head = 0; head < whole.shape().heads; ++head) {
        for (int64_t i = 0; i < whole.shape().dim; ++i) {
          pool.set(to, head, i, whole.get(row, head, i));
        }
      }
    }
  }

  std::vector<int32_t> table;
  Tensor pool;
  TensorView view;
};

/// The numbers below `count` in any order.
inline std::vector<int32_t> shuffled(int64_t count, std::mt19937_64& random) {
  std::vector<int32_t> pages(static_cast<size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  return pages;
}

}  // namespace longspan::testing
