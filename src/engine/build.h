// From a choice to a call that is ready to run.
#pragma once

#include <memory>
#include <optional>

#include "engine/call.h"
#include "longspan/plan_record.h"

namespace longspan {

/// What is to be prepared: a problem by options, or as a plan has it.
struct Wanted {
  Problem problem;
  Options options;  // the plan's where there is one
  std::optional<PlanRecord> record;
};

/// A problem that is checked.
Result<Wanted> wanted(const Problem& problem, const Options& options);
/// A plan's bytes, checked against `options`.
Result<Wanted> wanted(std::string_view plan, const Options& options, const Device& device);

/// Schedules, provider plans and guards of one rank. A record's hashes are compared.
Result<std::shared_ptr<const PreparedCall>> build_call(const Wanted& wanted, Choice choice,
                                                       const Device& device, int rank,
                                                       std::shared_ptr<guard::Report> report);

}  // namespace longspan
