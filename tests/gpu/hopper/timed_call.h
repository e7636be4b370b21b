// Calls of hopper on bf16 rows of random values in device memory, and their times in pairs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/cudnn/paired.h"
#include "gpu/hopper/against_reference.h"
#include "longspan/provider.h"

namespace longspan::testing {

/// Columns and heads of a problem.
struct Sizes {
  Dims dims;
  int64_t heads_q, heads_kv;
};

/// Normal values of bf16 in device memory. They repeat after a prime number of elements, so that
/// rows differ.
cuda::Memory random_rows(int64_t elements, uint32_t seed);

/// Tiles that lie one behind the other, as in packed sequences.
struct Sequence {
  int64_t queries, keys;
  Band band;
};
std::vector<PlacedTile> pack(const std::vector<Sequence>& sequences);

/// Visible pairs of a head.
int64_t pairs_of(const std::vector<PlacedTile>& tiles);

/// One prepared call of a direction. Backward reads O and LSE that hopper's forward made of the
/// same rows.
class TimedCall {
 public:
  TimedCall(const Sizes& sizes, Direction direction, std::vector<PlacedTile> tiles, Stream stream,
            bool whole = true);
  /// Queues it.
  void operator()() const;
  double tflops(double microseconds) const;
  const TileProblem& problem() const { return problem_; }
  /// What forward was called with.
  const ForwardTiles& forward_tiles() const { return forward_; }

 private:
  TensorView rows(int64_t count, int64_t heads, int64_t dim);
  TensorView zeros(DType dtype, int64_t count, int64_t heads, int64_t dim);
  void prepare_backward();

  std::vector<PlacedTile> tiles_;
  TileProblem problem_;
  std::vector<cuda::Memory> memory_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const Staged> staged_;
  cuda::Memory workspace_;
  ForwardTiles forward_;
  BackwardTiles backward_;
};

/// paired(), after each of the two has run until clocks have settled.
Paired settled(const Call& ours, const Call& other, Stream stream);

}  // namespace longspan::testing
