// A prepared hopper problem: blocks of queries on the device, launches of one kernel.
#pragma once

#include <array>
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

/// Words that launches count in.
inline constexpr size_t kCounters = 4 + kMostPieces;
static_assert(kCounters <= kLoanCounters);

/// Bytes from the start of the workspace: counters, and rows of Q, K and V where TMA cannot read
/// the caller's. Counters: of blocks drawn, and those of launches that pull (see PullParameters).
struct Scratch {
  size_t counter = 0, q = 0, k = 0, v = 0;
  size_t end = 0;
};

Scratch scratch_of(const TileProblem& problem);

struct StagedWork : public Staged {
  std::vector<PlacedTile> tiles;
  const Kernel* kernel = nullptr;
  int block_heads = 1;
  std::vector<Wave> waves;
  cuda::Memory blocks;  // Block
  cuda::Memory tokens;  // Tokens, where a kernel with terms reads them
};

/// Of launches that pull.
struct StagedPulls final : public StagedWork {
  int lenders = 0;
  int32_t unit_count = 0;
  int32_t piece_log2 = 0;
  std::array<uint32_t, kMostPieces> units_of_piece = {};
  cuda::Memory units, starts, places;
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
  Result<std::shared_ptr<const Staged>> stage_pulled(std::span<const PlacedTile> tiles,
                                                     std::span<const Pull> pulls) const override;
  Status forward(const ForwardTiles& tiles, Workspace workspace) const override;
  Status backward(const BackwardTiles& tiles, Workspace workspace) const override;

 private:
  Result<Parameters> parameters_of(const StagedWork& staged, const ForwardTiles& tiles,
                                   std::byte* workspace) const;
  /// Tiles, kernel and blocks; the work that they are of.
  Result<Work> stage_blocks(std::span<const PlacedTile> tiles, const Kernel& kernel,
                            StagedWork& staged) const;
  Status map_inputs(const StagedWork& staged, const ForwardTiles& tiles, std::byte* workspace,
                    Parameters& p) const;
  Status map_results(const StagedWork& staged, const ForwardTiles& tiles, Parameters& p) const;
  /// `p` is the base of what the staged kernel takes.
  Status launch(const StagedWork& staged, Parameters& p, Stream stream) const;
  Status forward_pulling(const StagedWork& staged, const ForwardTiles& tiles,
                         std::byte* workspace) const;

  TileProblem problem_;
  int ordinal_;
  int multiprocessors_;
  Scratch scratch_;
};

}  // namespace longspan::hopper
