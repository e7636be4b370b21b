// Attention over several ranks whose exchanges XLA does: tiles alone are computed here.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "longspan/engine.h"
#include "longspan/plan_record.h"
#include "registry.h"
#include "request.h"
#include "rounds.h"

namespace longspan::xla {

/// One direction of a sharded call.
struct Side {
  Rounds rounds;
  TileProblem tiles;           // of every rank: the largest capacities
  uint64_t schedule_hash = 0;  // of rank 0
  std::shared_ptr<const Plan> plan;
};

/// Thread-safe: ranks on one host compute on threads of their own.
class ShardedCall {
 public:
  /// What is asked for, with the schedules of all ranks built and proved. unsupported carries the
  /// declines; errors of request_of and parse_problem.
  static Result<std::shared_ptr<ShardedCall>> find(const Asked& asked);

  const Problem& problem() const { return problem_; }
  const Explanation& explanation() const { return explanation_; }
  int ranks() const { return ranks_; }
  bool has_gradients() const { return !explanation_.forward_only; }
  /// Whether backward needs O as it was accumulated, not as it was rounded.
  bool keeps_exact_o() const { return keeps_exact_o_; }
  /// Errors of make_record.
  const Result<PlanRecord>& record() const { return *record_; }
  const Side& side(Direction direction) const { return sides_[static_cast<size_t>(direction)]; }

  struct Tiles {
    std::span<const PlacedTile> tiles;
    const Staged* staged = nullptr;
  };
  /// Those of one rank and round (see Rounds::tiles). invalid_argument when there is no such one.
  Result<Tiles> tiles(Direction direction, int64_t rank, int64_t round);

 private:
  static Result<std::shared_ptr<ShardedCall>> make(const Asked& asked);
  Result<PlanRecord> make_record(const Request& request, const Device& device) const;
  Status build(const Device& device, const Setting& setting, Direction direction);

  Problem problem_;
  Explanation explanation_;
  int ranks_ = 1;
  bool keeps_exact_o_ = false;
  std::array<Side, 2> sides_;
  std::optional<Result<PlanRecord>> record_;
  std::mutex mutex_;
  /// By direction, rank and round, once asked for.
  std::map<std::array<int64_t, 3>, std::shared_ptr<const Staged>> staged_;
};

}  // namespace longspan::xla
