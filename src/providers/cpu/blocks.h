// Block sizes, scratch memory and band arithmetic of the tiled provider.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "longspan/mask.h"
#include "longspan/provider.h"
#include "providers/cpu/products.h"

namespace longspan::cpu {

/// Rows of a block of queries or keys. A block's operands should stay in a second-level cache of
/// 1 MiB: six (forward) to nine (backward) of them are in use at a time.
template <class T>
int64_t block_rows(const TileProblem& problem) {
  const int64_t row_bytes =
      std::max(problem.dim_qk, problem.dim_v) * static_cast<int64_t>(sizeof(T));
  return row_bytes <= 1024 ? 128 : 64;
}

/// Hands out pieces of a buffer, each aligned to a cache line. With no buffer it only counts.
template <class T>
class Pieces {
 public:
  explicit Pieces(T* data) : data_(data) {}

  T* take(int64_t count) {
    constexpr int64_t kLine = kWorkspaceAlignment / sizeof(T);
    T* piece = data_ == nullptr ? nullptr : data_ + taken_;
    taken_ += (count + kLine - 1) / kLine * kLine;
    return piece;
  }
  /// The same for another type.
  template <class S>
  S* take_as(int64_t count) {
    static_assert(sizeof(S) % sizeof(T) == 0);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(S));
    return reinterpret_cast<S*>(take(bytes / static_cast<int64_t>(sizeof(T))));
  }
  int64_t taken() const { return taken_; }

 private:
  T* data_;
  int64_t taken_ = 0;
};

/// The band between rows q0.. and k0.. of a tile, counted from q0 and k0.
inline Band shifted(Band band, int64_t q0, int64_t k0) {
  const int64_t lo = std::max(band.lo, -kUnbounded);
  const int64_t hi = std::min(band.hi, kUnbounded);
  return {lo + q0 - k0, hi + q0 - k0};
}

/// The smallest range that holds every key that queries [first, last) see, of `nk`.
inline Range seen_keys(Band band, int64_t first, int64_t last, int64_t nk) {
  const Range head = visible_keys(band, first, nk);
  const Range tail = visible_keys(band, last - 1, nk);
  return {head.first, std::max(head.first, tail.last)};
}

inline int64_t blocks(int64_t rows, int64_t block) { return (rows + block - 1) / block; }

/// The units in which score blocks are held. Scaling an operand or a score would round it, and
/// logits of size 40 would lose 2e-6 by that alone: operands are multiplied with a power of two,
/// which is exact, and the rest of the scale only ever meets differences of scores.
template <class T>
struct ScoreUnits {
  T factor = 0;  // operand -> operand in score units, sign of the scale included
  T log2 = 1;    // score difference -> power of two to take, in [1, 2)
  double natural = std::numbers::ln2;  // score -> logit

  explicit ScoreUnits(double scale) {
    const double powers = std::abs(scale) * std::numbers::log2e;
    const int exponent = powers == 0 ? 0 : std::ilogb(powers);
    const auto power = static_cast<T>(std::ldexp(1.0, exponent));
    if (powers == 0 || power == 0) return;  // every score is 0
    factor = std::copysign(power, static_cast<T>(scale));
    log2 = static_cast<T>(std::ldexp(powers, -exponent));
    natural = std::ldexp(std::abs(scale), -exponent);
  }
};

/// dst[j][i] = src[i][j] * factor for a rows x columns matrix.
template <class T, class S>
void transpose(const T* src, int64_t ld_src, int64_t rows, int64_t columns, S factor, S* dst,
               int64_t ld_dst) {
  for (int64_t i0 = 0; i0 < rows; i0 += kChunk) {
    const int64_t i1 = std::min(i0 + kChunk, rows);
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = i0; i < i1; ++i)
        dst[j * ld_dst + i] = static_cast<S>(src[i * ld_src + j]) * factor;
    }
  }
}

}  // namespace longspan::cpu
