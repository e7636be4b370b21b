// The prepared problem behind longspan::Call.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/row_program.h"
#include "longspan/engine.h"

namespace longspan {

/// One direction, ready to run.
struct Prepared {
  Schedule schedule;
  std::shared_ptr<const Plan> plan;                   // null when this rank has no tiles
  std::vector<std::shared_ptr<const Staged>> staged;  // per part of the attend steps, in order
  std::shared_ptr<const RowProgram> rows;             // null where a direction is not prepared
  std::vector<bool> awaited;                          // awaited_elsewhere(schedule)
  size_t workspace_bytes = 0;                         // schedule, then plan, once a queue
  uint64_t common_hash = 0;  // of rank 0's schedule and the provider: equal on every rank
};

/// The default ALiBi slopes of all query heads, accumulator type, on the call's device.
struct Slopes {
  std::shared_ptr<void> memory;  // null without ALiBi
  TensorView view;
};
Result<Slopes> make_default_slopes(const Problem& problem, const Device& device);

class PreparedCall final : public Call {
 public:
  PreparedCall(Setting setting, Explanation explanation, std::array<Prepared, 2> directions,
               int rank, bool on_host, Slopes default_slopes);

  const Problem& problem() const override { return setting_.problem; }
  const Partition& partition() const override { return setting_.partition; }
  const Explanation& explanation() const override { return explanation_; }
  const Schedule& schedule(Direction d) const override { return prepared(d).schedule; }
  const std::vector<BufferSpec>& saved_layout() const override { return saved_layout_; }
  size_t workspace_bytes(Direction d) const override { return prepared(d).workspace_bytes; }

  const Prepared& prepared(Direction d) const { return directions_[static_cast<size_t>(d)]; }
  int rank() const { return rank_; }
  /// Whether operands lie in host memory, where their page tables can be read.
  bool on_host() const { return on_host_; }
  const TensorView& default_slopes() const { return default_slopes_.view; }

 private:
  Setting setting_;
  Explanation explanation_;
  std::array<Prepared, 2> directions_;
  int rank_;
  bool on_host_;
  std::vector<BufferSpec> saved_layout_;
  Slopes default_slopes_;
};

/// What forward keeps: aliases that backward reads, then the buffers of its own.
std::vector<BufferSpec> saved_layout(const Schedule& forward, const Schedule& backward);

}  // namespace longspan
