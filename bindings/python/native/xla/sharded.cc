#include "sharded.h"

#include <fmt/format.h>

#include <algorithm>

#include "devices.h"
#include "request.h"

namespace longspan::xla {
namespace {

Result<std::vector<Schedule>> schedules_of(const Setting& setting, Direction direction,
                                           const Strategy& strategy) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < setting.topology.ranks(); ++rank) {
    LONGSPAN_TRY(Schedule schedule, strategy.build(setting, direction, rank));
    schedules.push_back(std::move(schedule));
  }
  LONGSPAN_CHECK_OK(check(setting, schedules));
  return schedules;
}

/// What one plan must offer to serve every rank.
TileProblem common_problem(std::span<const Schedule> schedules, const Rounds& rounds) {
  TileProblem common = schedules.front().tiles;
  for (const Schedule& schedule : schedules) {
    common.capacity_q = std::max(common.capacity_q, schedule.tiles.capacity_q);
  }
  common.capacity_k = rounds.key_rows();
  return common;
}

bool has_saved_o(const Schedule& schedule) {
  return std::any_of(schedule.buffers.begin(), schedule.buffers.end(), [](const Buffer& buffer) {
    return buffer.space == Space::kSaved && buffer.quantity == Quantity::kO;
  });
}

}  // namespace

Status ShardedCall::build(const Device& device, const Setting& setting, Direction direction) {
  const Selection& selection =
      direction == Direction::kForward ? explanation_.forward : explanation_.backward;
  LONGSPAN_TRY(const std::vector<Schedule> schedules,
               schedules_of(setting, direction, *selection.strategy));
  Side& side = sides_[static_cast<size_t>(direction)];
  LONGSPAN_TRY(side.rounds, rounds_of(schedules));
  side.tiles = common_problem(schedules, side.rounds);
  if (direction == Direction::kForward) keeps_exact_o_ = has_saved_o(schedules.front());
  LONGSPAN_TRY(side.plan, selection.provider->prepare(side.tiles, device));
  return {};
}

Result<std::shared_ptr<ShardedCall>> ShardedCall::make(const Asked& asked) {
  LONGSPAN_TRY(const Request request, parse_request(asked.request));
  const auto call = std::make_shared<ShardedCall>();
  LONGSPAN_TRY(call->problem_, parse_problem(asked.problem));
  LONGSPAN_TRY(const Device* const device, device_of(asked.ordinal));
  const Topology topology = Topology::blocks(request.ranks, 1);
  LONGSPAN_TRY(call->explanation_, explain(call->problem_, topology, *device, options_of(request)));
  if (!call->explanation_.ok()) {
    return Error{ErrorCode::kUnsupported, call->explanation_.text(), "selection"};
  }
  call->ranks_ = request.ranks;
  LONGSPAN_TRY(Partition partition,
               Partition::make(call->problem_, call->explanation_.partition, request.ranks));
  const Setting setting{
      .problem = call->problem_,
      .partition = std::move(partition),
      .topology = topology,
      .forward = request.strategy,
      .backward = request.gradients ? request.strategy : std::string(kNoStrategy)};
  LONGSPAN_CHECK_OK(call->build(*device, setting, Direction::kForward));
  if (request.gradients) LONGSPAN_CHECK_OK(call->build(*device, setting, Direction::kBackward));
  return call;
}

Result<std::shared_ptr<ShardedCall>> ShardedCall::find(const Asked& asked) {
  static auto* const calls = new Registry<ShardedCall>(make);
  return calls->find(asked);
}

Result<ShardedCall::Tiles> ShardedCall::tiles(Direction direction, int64_t rank, int64_t round) {
  const Side& of = side(direction);
  const auto& all = of.rounds.tiles;
  if (rank < 0 || rank >= ranks_ || all.empty() || round < 0 ||
      round >= static_cast<int64_t>(all.front().size())) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("rank {}, round {}: the call has {} ranks and {} rounds {}", rank,
                             round, ranks_, all.empty() ? 0 : all.front().size(), name(direction)),
                 "sharded"};
  }
  const auto& tiles = all[static_cast<size_t>(rank)][static_cast<size_t>(round)];
  const std::lock_guard lock(mutex_);
  const std::array<int64_t, 3> key = {static_cast<int64_t>(direction), rank, round};
  auto found = staged_.find(key);
  if (found == staged_.end()) {
    LONGSPAN_TRY(std::shared_ptr<const Staged> staged, of.plan->stage(tiles));
    found = staged_.emplace(key, std::move(staged)).first;
  }
  return Tiles{tiles, found->second.get()};
}

}  // namespace longspan::xla
