// A prepared hopper problem: blocks of queries on the device, launches of one kernel.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/provider.h"
#include "providers/hopper/forward/kernels.h"
#include "providers/hopper/forward/parameters.h"
#include "providers/hopper/work.h"

namespace longspan::hopper {

/// Bytes from the start of the workspace: a counter, and rows of Q, K and V where TMA cannot read
/// the caller's.
struct Scratch {
  size_t counter = 0, q = 0, k = 0, v = 0;
  size_t end = 0;
};

Scratch scratch_of(const TileProblem& problem);

struct StagedWork final : public Staged {
  std::vector<PlacedTile> tiles;
  const Kernel* kernel = nullptr;
  std::vector<Wave> waves;
  cuda::Memory blocks;  // Block
  cuda::Memory tokens;  // Tokens, where a kernel with terms reads them
};

class HopperPlan final : public Plan {
 public:
  HopperPlan(const TileProblem& problem, const Device& device)
      : problem_(problem),
        ordinal_(device.ordinal),
        multiprocessors_(device.multiprocessors),
        scratch_(scratch_of(problem)) {}

  size_t workspace_bytes() const override { return scratch_.end; }
  Result<std::shared_ptr<const Staged>> stage(std::span<const PlacedTile> tiles) const override;
  Status forward(const ForwardTiles& tiles, Workspace workspace) const override;
  Status backward(const BackwardTiles& tiles, Workspace workspace) const override;

 private:
  Result<Parameters> parameters_of(const StagedWork& staged, const ForwardTiles& tiles,
                                   std::byte* workspace) const;
  Status map_inputs(const StagedWork& staged, const ForwardTiles& tiles, std::byte* workspace,
                    Parameters& p) const;
  Status map_results(const StagedWork& staged, const ForwardTiles& tiles, Parameters& p) const;
  Status launch(const StagedWork& staged, Parameters& p, Stream stream) const;

  TileProblem problem_;
  int ordinal_;
  int multiprocessors_;
  Scratch scratch_;
};

}  // namespace longspan::hopper
