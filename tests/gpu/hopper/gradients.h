// hopper's backward against cuda/reference, both on the device.
#pragma once

#include <cstdint>
#include <optional>

#include "gpu/hopper/against_reference.h"
#include "providers/support.h"

namespace longspan::testing {

/// What backward gets from forward, and the gradients that it should compute, in float64.
struct ExactBackward {
  Tensor lse, delta;  // f32
  Tensor o;           // of the problem's type
  Gradients gradients;
};
ExactBackward exact_backward(const Case& c, const Inputs& in);

/// What a check varies: bytes of P and dS, or those of the provider; whether delta is left out,
/// which whole results may do.
struct BackwardWay {
  int64_t score_bytes = 0;
  bool from_o = false;
  double factor = 1;  // of the bars of GPUs
};

/// Gradients that are added to others: fails where one is further from the exact one than the bar,
/// and where a row that sees nothing, or lies in no tile, changed at all.
void check_added(const Case& c, const Inputs& in, const ExactBackward& exact,
                 const BackwardWay& way = {});

/// Whole gradients over NaN: fails as above, where a row that sees nothing is not 0, and where a
/// row of no tile was written.
void check_whole_gradients(const Case& c, const Inputs& in, const ExactBackward& exact,
                           const BackwardWay& way = {});

/// All of it, on inputs drawn from `seed`.
void check_backward(const Case& c, uint64_t seed, const BackwardWay& way = {});

/// The call of a case on views of host memory; with `from_o` without delta.
BackwardTiles call_of(const Case& c, const Inputs& in, const ExactBackward& exact,
                      Gradients& gradients, bool from_o = false);

/// Fails on an error. `way` as far as it says how to compute.
void compute_by_hopper(const Case& c, const BackwardTiles& call, const BackwardWay& way = {});

}  // namespace longspan::testing
