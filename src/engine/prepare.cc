#include "engine/prepare.h"

#include <utility>

#include "engine/agreement.h"
#include "engine/queues.h"
#include "plan/cache.h"

namespace longspan {
namespace {

/// Beyond this many ranks every rank proves only that its own schedule equals what the others
/// derive: building all of them on every rank would grow with the square.
constexpr int kMostCheckedRanks = 16;

size_t aligned(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

}  // namespace

Result<Prepared> prepare_direction(const Setting& setting, Direction direction,
                                   const Selection& selection, const Options& options,
                                   const Device& device, int rank) {
  const int ranks = setting.topology.ranks();
  Prepared prepared;
  // The schedule of rank 0 stands for all: every rank derives it from the same facts.
  const auto note_first = [&](const Schedule& first) {
    prepared.first_hash = hash_schedule(first);
    prepared.common_hash = prepared.first_hash * 31 + hash_bytes(selection.provider->name());
  };
  if (options.check_schedules && ranks <= kMostCheckedRanks) {
    std::vector<Schedule> all;
    for (int r = 0; r < ranks; ++r) {
      LONGSPAN_TRY(Schedule schedule, selection.strategy->build(setting, direction, r));
      all.push_back(std::move(schedule));
    }
    LONGSPAN_CHECK_OK(check(setting, all));
    note_first(all.front());
    prepared.schedule = std::move(all[static_cast<size_t>(rank)]);
  } else {
    LONGSPAN_TRY(const Schedule first, selection.strategy->build(setting, direction, 0));
    note_first(first);
    LONGSPAN_TRY(prepared.schedule, selection.strategy->build(setting, direction, rank));
  }
  prepared.workspace_bytes = static_cast<size_t>(prepared.schedule.workspace_bytes);
  if (prepared.schedule.tile_count() > 0) {
    LONGSPAN_TRY(prepared.plan,
                 options.plans->plan(*selection.provider, prepared.schedule.tiles, device));
    const size_t scratch = aligned(prepared.plan->workspace_bytes());
    prepared.schedule.scratch_bytes = static_cast<int64_t>(scratch);
    prepared.workspace_bytes += static_cast<size_t>(prepared.schedule.queues()) * scratch;
  }
  prepared.pulling = pulling_of(prepared.schedule);
  for (const Step& step : prepared.schedule.steps) {
    for (const Part& part : step.parts) {
      const bool pulled = part.after != kNone && part.after == prepared.pulling.step;
      LONGSPAN_TRY(prepared.staged.emplace_back(),
                   pulled ? prepared.plan->stage_pulled(part.tiles, prepared.pulling.pulls)
                          : prepared.plan->stage(part.tiles));
    }
  }
  prepared.awaited = awaited_elsewhere(prepared.schedule);
  LONGSPAN_TRY(prepared.rows, make_row_program(prepared.schedule, device));
  if (options.output_fill == OutputFill::kAlways) {
    LONGSPAN_TRY(prepared.fills, OutputFills::make(prepared.schedule, device));
  }
  return prepared;
}

}  // namespace longspan
