// Normally distributed inputs that depend on a seed alone.
#pragma once

#include <cstdint>
#include <random>

#include "longspan/tensor.h"

namespace longspan::tool {

/// N(0,1) in float64: std::mt19937_64, seeded by std::seed_seq{low half of seed, high half,
/// stream}, and the Box-Muller transform. Streams are independent of each other.
class Normal {
 public:
  Normal(uint64_t seed, uint32_t stream);
  double next();
  /// Passes over values not drawn; before the first, an even number of them.
  void skip(int64_t even) { engine_.discard(static_cast<unsigned long long>(even)); }

 private:
  std::mt19937_64 engine_;
  double spare_ = 0;
  bool has_spare_ = false;
};

/// The stream of each input.
enum class Draw : uint32_t {
  kQ = 0,
  kK = 1,
  kV = 2,
  kDout = 3,
  kSink = 4,
  kBias = 5,
  kLengths = 6
};

/// Whole numbers, by the same engine.
class Uniform {
 public:
  Uniform(uint64_t seed, Draw draw);
  /// In [0, bound), which is far below 2^64.
  uint64_t below(uint64_t bound) { return engine_() % bound; }

 private:
  std::mt19937_64 engine_;
};

/// Fills a tensor in the order row, head, dim, whatever its layout, each value rounded once. Uses
/// all cores; their number changes no bit.
void fill_normal(const TensorView& view, uint64_t seed, Draw draw);

}  // namespace longspan::tool
