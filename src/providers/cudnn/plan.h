// A prepared cudnn problem: how tiles become executions, and what surrounds each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/provider.h"
#include "providers/cudnn/graph.h"
#include "providers/cudnn/groups.h"
#include "providers/cudnn/kernels.h"

namespace longspan::cudnn {

/// Bytes from the start of the workspace.
struct Scratch {
  size_t o = 0;  // 16 bit: cuDNN's output, or what stands for it in backward
  size_t stats = 0;
  size_t q = 0, k = 0, v = 0;               // rows that cuDNN cannot read where they are
  size_t dout = 0, dq = 0, dk = 0, dv = 0;  // backward
  size_t offsets = 0;
  size_t cudnn = 0;
  size_t end = 0;
};

Scratch scratch_of(const TileProblem& problem);

/// The key of a group's graph, without strides.
GraphKey graph_key(const TileProblem& problem, const Group& group, int ordinal);

struct StagedGroup {
  Group group;
  GraphKey key;  // for packed tensors
  std::shared_ptr<const Graph> graph;
  // On the device:
  const DeviceEntry* entries = nullptr;
  const int32_t* lengths_q = nullptr;  // one of each declared batch entry, where padded
  const int32_t* lengths_k = nullptr;
};

struct StagedGroups final : public Staged {
  std::vector<PlacedTile> tiles;
  std::vector<StagedGroup> groups;
  cuda::Memory tables;
};

/// What one run of a group needs besides scratch memory.
struct Launch {
  GraphKey key;
  std::shared_ptr<const Graph> graph;
  EntryList list;
  Arguments arguments;
  bool packs_q = false, packs_k = false, packs_v = false;
};

/// Stages graphs for packed tensors. Tensors with other strides get graphs of their own at their
/// first call, which must not be captured.
class CudnnPlan final : public Plan {
 public:
  CudnnPlan(const TileProblem& problem, int ordinal)
      : problem_(problem), ordinal_(ordinal), scratch_(scratch_of(problem)) {}

  size_t workspace_bytes() const override { return scratch_.end; }
  Result<std::shared_ptr<const Staged>> stage(std::span<const PlacedTile> tiles) const override;
  Status forward(const ForwardTiles& tiles, Workspace workspace) const override;
  Status backward(const BackwardTiles& tiles, Workspace workspace) const override;

 private:
  template <class Tiles>
  Status attend_all(const Tiles& tiles, Workspace workspace) const;
  template <class Tiles>
  Result<Launch> make_launch(const StagedGroup& staged, const Tiles& tiles,
                             std::byte* workspace) const;
  template <class Tiles>
  Status prepare_inputs(const Launch& launch, const Tiles& tiles, std::byte* workspace) const;
  Status attend(const ForwardTiles& tiles, Launch& launch, std::byte* workspace) const;
  Status attend(const BackwardTiles& tiles, Launch& launch, std::byte* workspace) const;
  Result<std::shared_ptr<const Graph>> graph_of(const StagedGroup& staged, const GraphKey& key,
                                                Stream stream) const;

  TileProblem problem_;
  int ordinal_;
  Scratch scratch_;
};

/// internal where cuDNN wants more workspace than was promised.
Status fits_budget(const TileProblem& problem, const Graph& graph, const GraphKey& key);

}  // namespace longspan::cudnn
