#include "engine/build.h"

#include <utility>

#include "engine/prepare.h"
#include "engine/record.h"

namespace longspan {

Result<Wanted> wanted(const Asked& asked, const Options& options, const Device& device) {
  Wanted result;
  if (!asked.plan) {
    LONGSPAN_TRY(result.problem, validated(asked.problem));
    result.options = options;
    return result;
  }
  LONGSPAN_TRY(PlanRecord record, PlanRecord::from_bytes(*asked.plan));
  LONGSPAN_TRY(result.problem, parse_problem(record.problem));
  LONGSPAN_TRY(result.options, options_with(record, options));
  LONGSPAN_CHECK_OK(guard::check_policy(result.options.guards, device));
  result.record = std::move(record);
  return result;
}

Result<std::shared_ptr<const PreparedCall>> build_call(const Wanted& wanted, Choice choice,
                                                       const Device& device, int rank,
                                                       std::shared_ptr<guard::Report> report) {
  CallParts parts{.problem = wanted.problem,
                  .setting = std::move(choice.setting),
                  .explanation = std::move(choice.explanation),
                  .options = wanted.options,
                  .device = device,
                  .directions = {},
                  .rank = rank,
                  .default_slopes = {},
                  .guard = {}};
  parts.options.plans = nullptr;
  parts.options.log = {};
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const bool forward = direction == Direction::kForward;
    if (!forward && parts.explanation.forward_only) continue;
    const Selection& selection = forward ? parts.explanation.forward : parts.explanation.backward;
    LONGSPAN_TRY(Prepared prepared, prepare_direction(parts.setting, direction, selection,
                                                      wanted.options, device, rank));
    if (wanted.record) {
      LONGSPAN_CHECK_OK(check_hash(*wanted.record, direction, prepared.first_hash));
    }
    parts.directions[static_cast<size_t>(direction)] = std::move(prepared);
  }
  LONGSPAN_TRY(parts.default_slopes, make_default_slopes(wanted.problem, device));
  LONGSPAN_CHECK_OK(add_guard(parts, wanted.options, device, std::move(report)));
  return std::make_shared<const PreparedCall>(std::move(parts));
}

}  // namespace longspan
