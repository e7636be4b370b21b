#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "schedule/check.h"

namespace longspan::proof {
namespace {

/// Whom the pull step of a rank reads. Nothing else reads peers.
Result<std::set<int>> lenders_of(const Schedule& schedule) {
  std::set<int> lenders;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    for (const Copy& copy : schedule.steps[i].copies) {
      const Buffer& source = buffer_of(schedule, copy.src);
      if (source.space != Space::kPeer) continue;
      lenders.insert(source.peer);
      if (schedule.steps[i].kind == StepKind::kPull) continue;
      return defect(schedule, static_cast<StepId>(i), copy.src,
                    "a peer's memory is read by pull steps alone");
    }
  }
  return lenders;
}

/// The one pull step of a rank, or kNone.
Result<StepId> pull_of(const Schedule& schedule) {
  StepId found = kNone;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const auto id = static_cast<StepId>(i);
    if (schedule.steps[i].kind != StepKind::kPull) {
      if (schedule.steps[i].readers.empty()) continue;
      return defect(schedule, id, kNone, "readers belong to pull steps");
    }
    if (found != kNone) return defect(schedule, id, kNone, "a second pull");
    found = id;
  }
  return found;
}

/// What a rank lends is all of its keys and values, ready without any transfer.
Status check_lending(const Schedule& schedule, StepId pull) {
  for (const StepId earlier : step_of(schedule, pull).after) {
    if (is_transfer(schedule, earlier)) {
      return defect(schedule, pull, kNone,
                    fmt::format("lends what waits for transfer {}", earlier));
    }
  }
  std::set<Quantity> lent;
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::kLend) continue;
    for (const Copy& copy : step.copies) {
      if (buffer_of(schedule, copy.src).space != Space::kOperand || copy.src_row != copy.dst_row) {
        return defect(schedule, pull, copy.dst, "rows lie otherwise than in the tensor");
      }
      lent.insert(buffer_of(schedule, copy.dst).quantity);
    }
  }
  if (lent.size() == 2 || step_of(schedule, pull).readers.empty()) return {};
  return defect(schedule, pull, kNone, "lends no k and v");
}

}  // namespace

Status check_pulls(const Setting& setting, std::span<const Schedule> schedules) {
  for (const Schedule& schedule : schedules) {
    LONGSPAN_TRY(const StepId pull, pull_of(schedule));
    if (pull != kNone && !setting.pulls) {
      return defect(schedule, pull, kNone, "pulls are not allowed");
    }
    if (pull != kNone) LONGSPAN_CHECK_OK(check_lending(schedule, pull));
  }
  for (const Schedule& lender : schedules) {
    LONGSPAN_TRY(const StepId pull, pull_of(lender));
    const std::vector<int> readers =
        pull == kNone ? std::vector<int>() : step_of(lender, pull).readers;
    for (const Schedule& reader : schedules) {
      LONGSPAN_TRY(const std::set<int> lenders, lenders_of(reader));
      const bool told = std::count(readers.begin(), readers.end(), reader.rank) == 1;
      const bool reads = lenders.contains(lender.rank);
      if (told == reads) continue;
      return defect(lender, pull, kNone,
                    fmt::format("rank {} {} it", reader.rank,
                                reads ? "reads from it and is no reader of"
                                      : "is a reader and does not pull from"));
    }
  }
  return {};
}

}  // namespace longspan::proof
