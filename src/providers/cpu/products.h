// Small matrix products of blocks that lie in scratch memory.
#pragma once

#include <array>
#include <cstdint>

namespace longspan::cpu {

/// C[n][m] (+)= sum over k of A[k][m] * B, all row-major with rows lda, ldb and ldc elements apart.
/// B is [n][k], or [k][n] when `transposed`. `adds` keeps the old C.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transposed = false;
  bool adds = false;
};

/// A product of one shape, compiled for this machine when constructed. Thread-safe, allocates
/// nothing when it runs, and equal operands give equal bits wherever they lie. Machines that cannot
/// take compiled kernels get a plain loop.
template <class T>
class Product {
 public:
  Product() = default;
  explicit Product(const ProductShape& shape);
  void operator()(const T* a, const T* b, T* c) const;

 private:
  void (*kernel_)(const T*, const T*, T*, ...) = nullptr;
  ProductShape shape_;
};

/// Blocks are cut into chunks of 16, 32, 64 and 128 rows: few kernels, little padding.
inline constexpr int64_t kChunk = 16;
inline constexpr int kLevels = 4;

inline constexpr int64_t chunk_rows(int level) { return kChunk << level; }
inline constexpr int64_t padded(int64_t rows) { return (rows + kChunk - 1) / kChunk * kChunk; }

/// Calls body(begin, level) for the chunks of `rows` rows (a multiple of kChunk), largest first.
template <class Body>
void for_chunks(int64_t rows, Body&& body) {
  int64_t begin = 0;
  for (int level = kLevels - 1; level >= 0; --level) {
    for (; rows - begin >= chunk_rows(level); begin += chunk_rows(level)) body(begin, level);
  }
}

/// Products over chunks of two sides: [level of m or n][level of the other side].
template <class T>
using ProductTable = std::array<std::array<Product<T>, kLevels>, kLevels>;

/// Fills a table up to blocks of `block` rows: shape(rows of the first index, of the second).
template <class T, class Shape>
ProductTable<T> make_products(int64_t block, Shape&& shape) {
  ProductTable<T> table;
  for (int i = 0; chunk_rows(i) <= block && i < kLevels; ++i) {
    for (int j = 0; chunk_rows(j) <= block && j < kLevels; ++j) {
      table[i][j] = Product<T>(shape(chunk_rows(i), chunk_rows(j)));
    }
  }
  return table;
}

}  // namespace longspan::cpu
