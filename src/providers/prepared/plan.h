// A prepared problem: how tiles become runs of builds, and what surrounds each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cuda/runtime.h"
#include "longspan/provider.h"
#include "providers/prepared/choose.h"
#include "providers/prepared/launches.h"
#include "providers/prepared/layout.h"
#include "providers/prepared/scratch.h"
#include "providers/rows/kernels.h"

namespace longspan::prepared {

struct StagedLaunch {
  Launch launch;
  rows::EntryList list;
  Operand cumulative_q, cumulative_k;  // where packed
  Operand lengths_q, lengths_k;        // of builds of fixed rows
  bool adds_keys = false;  // whole results: other launches compute gradients of the same keys
};

struct StagedLaunches final : public Staged {
  std::vector<PlacedTile> tiles;
  std::vector<StagedLaunch> launches;
  rows::EntryList blanks;  // whole results: rows that no launch writes
  cuda::Memory tables;
};

inline constexpr uint32_t bit(Name name) { return uint32_t{1} << static_cast<uint32_t>(name); }

/// One run: what its build is given, and which operands are not the caller's own rows.
struct Run {
  const StagedLaunch* staged = nullptr;
  Values values;
  uint32_t scratch = 0;  // a bit for each Name

  bool in_scratch(Name name) const { return (scratch & bit(name)) != 0; }
};

class PreparedPlan final : public Plan {
 public:
  PreparedPlan(const TileProblem& problem, int ordinal, Builds builds)
      : problem_(problem),
        ordinal_(ordinal),
        builds_(std::move(builds)),
        scratch_(scratch_of(problem, builds_)) {}

  size_t workspace_bytes() const override { return scratch_.end; }
  Result<std::shared_ptr<const Staged>> stage(std::span<const PlacedTile> tiles) const override;
  Status forward(const ForwardTiles& tiles, Workspace workspace) const override;
  Status backward(const BackwardTiles& tiles, Workspace workspace) const override;

 private:
  template <class Tiles>
  Status attend_all(const Tiles& tiles, Workspace workspace) const;
  template <class Tiles>
  Run begin(const StagedLaunch& staged, const Tiles& tiles, std::byte* workspace) const;
  Rows rows_of(Name name) const;
  void place(Run& run, Name name, const TensorView& view, bool allowed, std::byte* workspace) const;
  void place_statistics(Run& run, const TensorView& lse, std::byte* workspace) const;
  Status place_buffers(Run& run, std::byte* workspace) const;
  Status pack_input(const Run& run, Name name, const TensorView& view, bool negated) const;
  Status attend(const ForwardTiles& tiles, Run& run, std::byte* workspace) const;
  Status attend(const BackwardTiles& tiles, Run& run, std::byte* workspace) const;
  Status deliver_statistics(const ForwardTiles& tiles, const Run& run) const;
  Status prepare_backward(const BackwardTiles& tiles, const Run& run) const;
  Status deliver_gradients(const BackwardTiles& tiles, const Run& run) const;

  TileProblem problem_;
  int ordinal_;
  Builds builds_;
  Scratch scratch_;
};

}  // namespace longspan::prepared
