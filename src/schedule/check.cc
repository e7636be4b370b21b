#include "schedule/check.h"

#include <fmt/format.h>

#include <algorithm>

namespace longspan {
namespace proof {

Error defect(const Schedule& schedule, StepId step, BufferId buffer, std::string_view what) {
  std::string text =
      fmt::format("{} {}: rank {}", schedule.strategy, name(schedule.direction), schedule.rank);
  const bool known_step = step >= 0 && static_cast<size_t>(step) < schedule.steps.size();
  if (known_step) {
    text += fmt::format(", step {} ({})", step, name(step_of(schedule, step).kind));
  }
  const bool known_buffer = buffer >= 0 && static_cast<size_t>(buffer) < schedule.buffers.size();
  if (known_buffer) text += fmt::format(", buffer \"{}\"", buffer_of(schedule, buffer).name);
  return {ErrorCode::kInternal, fmt::format("{}: {}", text, what), "schedule"};
}

bool holds_tokens(const Buffer& buffer, int64_t begin, int64_t end) {
  auto run = std::partition_point(buffer.runs.begin(), buffer.runs.end(), [begin](const Run& r) {
    return r.row + r.tokens.size() <= begin;
  });
  for (; run != buffer.runs.end() && run->row < end; ++run) {
    if (std::max(run->row, begin) < std::min(run->row + run->valid, end)) return true;
  }
  return false;
}

const Run* RunFinder::find(BufferId id, int64_t row) {
  const std::vector<Run>& runs = buffer_of(schedule_, id).runs;
  size_t& hint = hints_[static_cast<size_t>(id)];
  const auto holds = [&](size_t i) {
    return i < runs.size() && runs[i].row <= row && row < runs[i].row + runs[i].valid;
  };
  if (holds(hint)) return &runs[hint];
  if (holds(hint + 1)) return &runs[++hint];
  const auto after = std::upper_bound(runs.begin(), runs.end(), row,
                                      [](int64_t r, const Run& run) { return r < run.row; });
  if (after == runs.begin()) return nullptr;
  const auto index = static_cast<size_t>(after - runs.begin()) - 1;
  if (!holds(index)) return nullptr;
  hint = index;
  return &runs[index];
}

}  // namespace proof

namespace {

Status check_set(const Setting& setting, std::span<const Schedule> schedules) {
  const auto fail = [](std::string text) {
    return Error{ErrorCode::kInternal, std::move(text), "schedule"};
  };
  if (schedules.empty()) return fail("no schedules to check");
  const auto ranks = static_cast<int>(schedules.size());
  if (setting.partition.ranks() != ranks || setting.topology.ranks() != ranks) {
    return fail(fmt::format("{} schedules for a partition of {} ranks and a topology of {}", ranks,
                            setting.partition.ranks(), setting.topology.ranks()));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const Schedule& schedule = schedules[static_cast<size_t>(rank)];
    if (schedule.rank != rank || schedule.ranks != ranks) {
      return fail(fmt::format("schedule {} says rank {} of {}; expected rank {} of {}", rank,
                              schedule.rank, schedule.ranks, rank, ranks));
    }
    if (schedule.direction != schedules[0].direction) {
      return fail(fmt::format("rank {} has the {} schedule, rank 0 the {} one", rank,
                              name(schedule.direction), name(schedules[0].direction)));
    }
  }
  return {};
}

}  // namespace

Status check(const Setting& setting, std::span<const Schedule> schedules) {
  LONGSPAN_CHECK_OK(check_set(setting, schedules));
  for (const Schedule& schedule : schedules) {
    LONGSPAN_CHECK_OK(proof::check_buffers(setting, schedule));
    LONGSPAN_CHECK_OK(proof::check_steps(setting, schedule));
    LONGSPAN_CHECK_OK(proof::check_contents(setting, schedule));
    LONGSPAN_CHECK_OK(proof::check_accesses(schedule));
  }
  LONGSPAN_CHECK_OK(proof::check_messages(schedules));
  LONGSPAN_CHECK_OK(proof::check_in_order(schedules));
  LONGSPAN_CHECK_OK(proof::check_pulls(setting, schedules));
  return proof::check_coverage(setting, schedules);
}

}  // namespace longspan
