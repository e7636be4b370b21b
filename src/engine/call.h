// The prepared problem behind longspan::Call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/output_fills.h"
#include "engine/pulling.h"
#include "engine/row_program.h"
#include "guard/guard.h"
#include "longspan/engine.h"

namespace longspan {

/// One direction, ready to run.
struct Prepared {
  Schedule schedule;
  std::shared_ptr<const Plan> plan;                   // null when this rank has no tiles
  std::vector<std::shared_ptr<const Staged>> staged;  // per part of the attend steps, in order
  std::shared_ptr<const RowProgram> rows;             // null where a direction is not prepared
  std::shared_ptr<const OutputFills> fills;           // null where they are elided
  std::vector<bool> awaited;                          // awaited_elsewhere(schedule)
  Pulling pulling;                                    // pulling_of(schedule)
  /// Of the schedule, the plan once a queue, then the guard: multiples of kWorkspaceAlignment each.
  size_t workspace_bytes = 0;
  uint64_t first_hash = 0;   // of rank 0's schedule: equal on every rank
  uint64_t common_hash = 0;  // of it and the provider
};

/// The default ALiBi slopes of all query heads, accumulator type, on the call's device.
struct Slopes {
  std::shared_ptr<void> memory;  // null without ALiBi
  TensorView view;
};
Result<Slopes> make_default_slopes(const Problem& problem, const Device& device);

/// What a call is made of. The setting's problem is what schedules are of: without device lengths
/// where uniform ones are promised.
struct CallParts {
  Problem problem;
  Setting setting;
  Explanation explanation;
  Options options;  // without cache and log
  Device device;
  std::array<Prepared, 2> directions;
  int rank = 0;
  Slopes default_slopes;
  std::unique_ptr<const guard::Guard> guard;  // null where a call cannot break a promise
};

/// Guards what the problem and the options promise.
Status add_guard(CallParts& parts, const Options& options, const Device& device,
                 std::shared_ptr<guard::Report> report);

class PreparedCall final : public Call {
 public:
  explicit PreparedCall(CallParts parts);

  const Problem& problem() const override { return parts_.problem; }
  const Partition& partition() const override { return parts_.setting.partition; }
  const Explanation& explanation() const override { return parts_.explanation; }
  const Schedule& schedule(Direction d) const override { return prepared(d).schedule; }
  const std::vector<BufferSpec>& saved_layout() const override { return saved_layout_; }
  size_t workspace_bytes(Direction d) const override { return prepared(d).workspace_bytes; }
  Result<PlanRecord> record() const override;

  const Prepared& prepared(Direction d) const { return parts_.directions[static_cast<size_t>(d)]; }
  int rank() const { return parts_.rank; }
  /// Whether operands lie in host memory, where their page tables can be read.
  bool on_host() const { return !parts_.device.is_cuda(); }
  const TensorView& default_slopes() const { return parts_.default_slopes.view; }
  const guard::Guard* guard() const { return parts_.guard.get(); }
  /// The guard's part of a workspace; null without a guard.
  void* guard_scratch(Direction direction, Workspace workspace) const;
  /// Whether tiles end at lengths that come with the call.
  bool trims_tiles() const { return parts_.setting.problem.device_lengths; }
  bool has_run(Direction d) const { return has_run_[static_cast<size_t>(d)]; }
  void note_run(Direction d) const { has_run_[static_cast<size_t>(d)] = true; }

 private:
  CallParts parts_;
  mutable std::array<std::atomic<bool>, 2> has_run_ = {};
  std::vector<BufferSpec> saved_layout_;
};

/// What forward keeps: aliases that backward reads, then the buffers of its own.
std::vector<BufferSpec> saved_layout(const Schedule& forward, const Schedule& backward);

}  // namespace longspan
