// Where the shared cases run: on the host, or in the programs of tests/gpu on a CUDA device.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "longspan/provider.h"

namespace longspan::testing {

/// All providers that take the lane's device.
std::vector<const Provider*> lane_providers();

/// Those of them that are compared with cpu/reference.
std::vector<const Provider*> compared_providers();

/// Those of them that promise the same bits however a call is split, whatever the strides and the
/// other heads.
std::vector<const Provider*> fixed_order_providers();

/// The device that they are tested on. `threads` of the host.
Device lane_device(int threads);

/// Whether the provider takes the problem in both directions. Fails the test where it had to.
bool offered(const Provider& provider, const Device& device, const TileProblem& problem);

/// Prepares and runs one call on a workspace of exactly the size asked for, which holds NaN. Views
/// are host memory: a CUDA device gets copies with canaries around them, and what it wrote is
/// copied back.
Status compute(const Provider& provider, const Device& device, const TileProblem& problem,
               const ForwardTiles& tiles);
Status compute(const Provider& provider, const Device& device, const TileProblem& problem,
               const BackwardTiles& tiles);

/// compute() on the host.
Status compute_on_host(const Provider& provider, const Device& device, const TileProblem& problem,
                       const ForwardTiles& tiles);
Status compute_on_host(const Provider& provider, const Device& device, const TileProblem& problem,
                       const BackwardTiles& tiles);

/// "tiled" for cpu/tiled.
inline std::string label(const ::testing::TestParamInfo<const Provider*>& info) {
  const std::string_view name = info.param->name();
  return std::string(name.substr(name.find('/') + 1));
}

}  // namespace longspan::testing
