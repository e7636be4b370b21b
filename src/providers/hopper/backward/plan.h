// A prepared hopper problem of backward: chunks of the tiles, two launches each.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/provider.h"
#include "providers/hopper/backward/chunks.h"
#include "providers/hopper/backward/kernels.h"
#include "providers/hopper/backward/lists.h"
#include "providers/hopper/backward/parameters.h"
#include "providers/hopper/backward/scratch.h"
#include "providers/hopper/heuristics.h"

namespace longspan::hopper {

/// A chunk, and where its lists begin in those of the call.
struct StagedChunk {
  Range heads, key_heads;
  size_t regions = 0, lines = 0, scores = 0, values = 0, gradients = 0;
  int32_t score_count = 0;  // items
  int32_t value_count = 0;
  int32_t gradient_count = 0;
  int32_t head_blocks = 0;
  int32_t sums_q_row = 0;  // as in Chunk
  ReadRows reads;
};

struct StagedBackward final : public Staged {
  std::vector<PlacedTile> tiles;
  std::vector<StagedChunk> chunks;
  cuda::Memory regions, lines, scores, values, gradients;
  cuda::Memory tokens;  // of the regions, where a kernel with terms reads them
};

class BackwardPlan final : public Plan {
 public:
  BackwardPlan(const TileProblem& problem, const Device& device)
      : problem_(problem),
        ordinal_(device.ordinal),
        multiprocessors_(device.multiprocessors),
        scratch_(backward_scratch(problem)),
        columns_(gradient_columns(problem.dim_qk, problem.dim_v)),
        sums_values_(sums_values(problem)),
        score_kernel_(sums_values_ ? value_kernel(problem.dtype)
                                   : score_kernel(problem.dtype, has_terms(problem.features))) {}

  size_t workspace_bytes() const override { return scratch_.end; }
  Result<std::shared_ptr<const Staged>> stage(std::span<const PlacedTile> tiles) const override;
  Status forward(const ForwardTiles& tiles, Workspace workspace) const override;
  Status backward(const BackwardTiles& tiles, Workspace workspace) const override;

 private:
  struct Launch;

  Status set_call(const BackwardTiles& tiles, std::byte* workspace, Launch& launch) const;
  void set_rows(const BackwardTiles& tiles, std::byte* workspace, Launch& launch) const;
  void set_chunk(const StagedBackward& staged, const StagedChunk& chunk, Launch& launch) const;
  void complete_values(Launch& launch) const;
  Status run(Launch& launch, Stream stream) const;
  Status run_packed(const BackwardTiles& tiles, const StagedChunk& chunk, std::byte* workspace,
                    const Launch& all) const;

  int key_rows() const { return sums_values_ ? kGradientRows : kUnitKeys; }

  TileProblem problem_;
  int ordinal_;
  int multiprocessors_;
  BackwardScratch scratch_;
  GradientColumns columns_;
  bool sums_values_;
  const BackwardKernel& score_kernel_;
};

}  // namespace longspan::hopper
