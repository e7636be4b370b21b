// Problems, tensors and calls for the provider tests.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "longspan/provider.h"

namespace longspan::testing {

enum class Memory { kTokenMajor, kHeadMajor };

/// [batch * seq, heads, dim] with a gap behind every row of memory and `lead` elements before it.
/// Everything is NaN at first.
class Tensor {
 public:
  struct Shape {
    DType dtype = DType::kF32;
    int64_t rows = 0, heads = 1, dim = 1;
    Memory memory = Memory::kTokenMajor;
    int64_t batch = 1;
    int64_t gap = 0;
    int64_t lead = 0;
  };

  explicit Tensor(const Shape& shape);
  Tensor(Tensor&&) = default;  // a copy's view would be the original's
  Tensor& operator=(Tensor&&) = default;
  const TensorView& view() const { return view_; }
  double get(int64_t row, int64_t head, int64_t i) const;
  /// Rounds to the element type.
  void set(int64_t row, int64_t head, int64_t i, double value);
  void fill(double value);
  void fill_normal(std::mt19937_64& random, double deviation = 1);
  /// All elements in logical order.
  std::vector<double> values() const;
  /// The same elements in another type or memory order.
  Tensor copy(const Shape& shape) const;
  const Shape& shape() const { return shape_; }

 private:
  Shape shape_;
  std::vector<uint64_t> storage_;
  TensorView view_;
};

struct Case {
  TileProblem problem;  // direction is set by the calls
  std::vector<PlacedTile> tiles;
  double scale = 1;
  Memory memory = Memory::kTokenMajor;
  int64_t batch = 1;
  int64_t gap = 0;
  ScoreTerms terms;
  TensorView max_logit;
  TensorView dbias;

  std::string text() const;
};

struct Inputs {
  Tensor q, k, v, dout;
};
Inputs make_inputs(const Case& c, uint64_t seed, double deviation = 1);

struct Carry {
  Tensor o, lse;
};
struct Gradients {
  Tensor dq, dk, dv;
};

/// O = 0 and LSE = -inf; zeros.
Carry empty_carry(const Case& c, DType dtype);
Gradients zero_gradients(const Case& c, DType dtype);

/// Runs one call by compute() of the lane. Fails the test on error.
void forward(const Provider& provider, const Device& device, const Case& c, const Inputs& inputs,
             std::span<const PlacedTile> tiles, Carry& carry);
void backward(const Provider& provider, const Device& device, const Case& c, const Inputs& inputs,
              std::span<const PlacedTile> tiles, const Tensor& lse, const Tensor& delta,
              Gradients& gradients);

/// Rowsum of dout * o, in `dtype`.
Tensor make_delta(const Case& c, const Inputs& inputs, const Tensor& o, DType dtype);

/// rms(error) / rms(reference); the absolute error's rms where the reference is all but zero.
/// NaN in `values` gives infinity.
double relative_rms(const std::vector<double>& values, const std::vector<double>& reference);

/// Largest |error| / max(1, |reference|); infinity unless -inf stands at the same places.
double lse_error(const std::vector<double>& values, const std::vector<double>& reference);

/// `values` rounded to `dtype`.
std::vector<double> rounded(const std::vector<double>& values, DType dtype);

/// The host.
Device device(int threads);
const Provider& tiled();
const Provider& reference();

/// Whether a provider computes in float64 whatever the type, and takes f64 views of results.
inline bool is_oracle(const Provider& provider) { return provider.name().ends_with("/reference"); }

/// Largest relative RMS and LSE error of results that were not rounded to 16 bits; an oracle's are
/// f64.
struct Bars {
  double tensors;
  double lse;
};
Bars bars(const Provider& provider, DType dtype);

PlacedTile make_placed(int64_t q_row, int64_t nq, int64_t k_row, int64_t nk, Band band);

/// Two query heads on one key head, one tile over all rows.
Case one_tile(int64_t nq, int64_t nk, Band band, DType dtype = DType::kF32);

/// What one provider computes forward and backward, from an empty carry and zero gradients in
/// accumulator(dtype) or `wide`.
struct Outcome {
  Carry carry;
  Gradients gradients;
};
Outcome run(const Provider& provider, const Case& c, const Inputs& in, const Device& device);
Outcome run(const Provider& provider, const Case& c, const Inputs& in, const Device& device,
            DType wide);

int64_t pick(std::mt19937_64& random, int64_t low, int64_t high);

/// A random_case of few rows and narrow heads.
Case small_case(std::mt19937_64& random);

/// A problem of many shapes: bands of all kinds, shared rows, groups, dtypes, strides.
Case random_case(std::mt19937_64& random);

}  // namespace longspan::testing
