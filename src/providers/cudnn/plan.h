// A prepared cudnn problem: how tiles become executions, and what surrounds each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/provider.h"
#include "providers/cudnn/graph.h"
#include "providers/cudnn/groups.h"
#include "providers/cudnn/heads.h"
#include "providers/cudnn/offsets.h"
#include "providers/cudnn/operands.h"

namespace longspan::cudnn {

/// Bytes from the start of the workspace.
struct Scratch {
  std::array<size_t, kTensors> tensors{};  // packed rows of those that are not in place
  size_t bias = 0, dbias = 0;
  size_t offsets = 0;
  size_t cut_entries = 0, cut_lengths = 0;  // with device lengths
  size_t cudnn = 0;
  size_t end = 0;
};

Scratch scratch_of(const TileProblem& problem);

/// The key of a group's graph where the caller's tensors are packed, with or without O in backward.
/// The group is of head_slice(problem).
GraphKey packed_key(const TileProblem& problem, const Group& group, bool with_o, int ordinal);

struct StagedGroup {
  Group group;
  GraphKey key;  // for packed tensors
  std::shared_ptr<const Graph> graph;
  EntryList list;
  // On the device:
  const int32_t* lengths_q = nullptr;  // one of each declared batch entry, where padded
  const int32_t* lengths_k = nullptr;
  const EntryTokens* tokens = nullptr;  // of each entry, with device lengths
};

struct StagedGroups final : public Staged {
  std::vector<PlacedTile> tiles;
  std::vector<StagedGroup> groups;
  EntryList blanks;  // whole results: rows that no execution writes
  cuda::Memory tables;
};

/// What one run of a group needs besides scratch memory.
struct Launch {
  GraphKey key;
  std::shared_ptr<const Graph> graph;
  EntryList list;
  Operands operands;
  std::array<int64_t, kTensors> first{};  // elements of views before those addresses
  Arguments arguments;
  Cutting cutting;
  bool adds_dq = false;
  Entry entry;  // with a bias, which has one
};

/// Stages graphs for packed tensors. Tensors with other strides get graphs of their own at their
/// first call, which must not be captured.
class CudnnPlan final : public Plan {
 public:
  CudnnPlan(const TileProblem& problem, int ordinal)
      : problem_(problem),
        slice_(head_slice(problem)),
        ordinal_(ordinal),
        scratch_(scratch_of(slice_)) {}

  size_t workspace_bytes() const override { return scratch_.end; }
  Result<std::shared_ptr<const Staged>> stage(std::span<const PlacedTile> tiles) const override;
  Status forward(const ForwardTiles& tiles, Workspace workspace) const override;
  Status backward(const BackwardTiles& tiles, Workspace workspace) const override;

 private:
  template <class Tiles>
  Status attend_all(const Tiles& tiles, Workspace workspace) const;
  template <class Tiles>
  Status attend_slice(const StagedGroups& staged, const Tiles& tiles, std::byte* workspace) const;
  template <class Tiles>
  Result<Launch> make_launch(const StagedGroup& staged, const Tiles& tiles,
                             std::byte* workspace) const;
  Cutting cutting_of(const StagedGroup& staged, const ActualLengths& lengths,
                     std::byte* workspace) const;
  Status pack_inputs(const Launch& launch, std::span<const Slot> slots, bool negated_q,
                     Stream stream) const;
  Status pack_bias(const ScoreTerms& terms, const Launch& launch, Stream stream) const;
  Status deliver_dbias(const BackwardTiles& tiles, const Launch& launch) const;
  Status prepare_backward(const BackwardTiles& tiles, const Launch& launch) const;
  Status attend(const ForwardTiles& tiles, Launch& launch, void* workspace) const;
  Status attend(const BackwardTiles& tiles, Launch& launch, void* workspace) const;
  Status deliver_results(const Launch& launch, std::span<const Slot> slots, bool negated_dq,
                         Stream stream) const;
  Result<std::shared_ptr<const Graph>> graph_of(const StagedGroup& staged, const GraphKey& key,
                                                Stream stream) const;

  TileProblem problem_;
  TileProblem slice_;  // what one execution computes
  int ordinal_;
  Scratch scratch_;
};

/// internal where cuDNN wants more workspace than was promised.
Status fits_budget(const TileProblem& problem, const Graph& graph, const GraphKey& key);

}  // namespace longspan::cudnn
