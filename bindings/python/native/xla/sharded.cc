#include "sharded.h"

#include <fmt/format.h>

#include <algorithm>

#include "devices.h"

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

/// What a plan has settled, or what is chosen for a request.
Result<Choice> choice_of(const Problem& problem, const Request& request, const Device& device) {
  const Options options = options_of(request);
  Choice choice;
  if (request.plan) {
    LONGSPAN_TRY(choice, settle(*request.plan, request.topology(), device));
  } else {
    LONGSPAN_TRY(choice.explanation, explain(problem, request.topology(), device, options));
    if (!choice.explanation.ok()) {
      return Error{ErrorCode::kUnsupported, choice.explanation.text(), "selection"};
    }
    LONGSPAN_TRY(choice.setting, make_setting(problem, request.topology(), device, options));
    choice.setting.forward = options.forward.strategy;
    choice.setting.backward = options.backward.strategy;
  }
  choice.setting.whole = false;  // the program carries partial results
  return choice;
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
  side.schedule_hash = hash_schedule(schedules.front());
  if (direction == Direction::kForward) keeps_exact_o_ = has_saved_o(schedules.front());
  LONGSPAN_TRY(side.plan, selection.provider->prepare(side.tiles, device));
  return {};
}

Result<std::shared_ptr<ShardedCall>> ShardedCall::make(const Asked& asked) {
  LONGSPAN_TRY(const Request request, request_of(asked));
  const auto call = std::make_shared<ShardedCall>();
  LONGSPAN_TRY(call->problem_, parse_problem(asked.problem));
  LONGSPAN_TRY(const Device* const device, device_of(asked.ordinal));
  LONGSPAN_TRY(const Choice choice, choice_of(call->problem_, request, *device));
  call->explanation_ = choice.explanation;
  call->ranks_ = request.ranks;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    if (direction == Direction::kBackward && !request.gradients) continue;
    LONGSPAN_CHECK_OK(call->build(*device, choice.setting, direction));
    const uint64_t hash = call->side(direction).schedule_hash;
    if (request.plan) LONGSPAN_CHECK_OK(check_hash(*request.plan, direction, hash));
  }
  call->record_ =
      request.plan ? Result<PlanRecord>(*request.plan) : call->make_record(request, *device);
  return call;
}

Result<PlanRecord> ShardedCall::make_record(const Request& request, const Device& device) const {
  return longspan::make_record({.problem = problem_,
                                .topology = request.topology(),
                                .device = device,
                                .options = options_of(request),
                                .explanation = explanation_,
                                .forward_hash = side(Direction::kForward).schedule_hash,
                                .backward_hash = side(Direction::kBackward).schedule_hash});
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
