// From a choice to a call that is ready to run.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "engine/call.h"
#include "longspan/plan_record.h"

namespace longspan {

/// What a caller gives: a problem, or the bytes of a plan.
struct Asked {
  const Problem& problem;
  std::optional<std::string_view> plan;
};

/// What is to be prepared: a problem by options, or as a plan has it.
struct Wanted {
  Problem problem;
  Options options;  // the plan's where there is one
  std::optional<PlanRecord> record;
};

/// Checked: the problem by itself, a plan against options and device too.
Result<Wanted> wanted(const Asked& asked, const Options& options, const Device& device);

/// Schedules, provider plans and guards of one rank. A record's hashes are compared.
Result<std::shared_ptr<const PreparedCall>> build_call(const Wanted& wanted, Choice choice,
                                                       const Device& device, int rank,
                                                       std::shared_ptr<guard::Report> report);

}  // namespace longspan
