// Plans in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "inputs.h"
#include "longspan/plan_record.h"
#include "output_file.h"

namespace longspan::tool {

/// A plan and its bytes.
struct PlanFile {
  std::string bytes;
  PlanRecord record;
};

/// invalid_argument names the file where it cannot be read, or holds no plan.
Result<PlanFile> read_plan(const std::string& path);

/// Ranks of a plan as threads. invalid_argument for more than a run may have.
Result<Topology> planned_topology(const PlanRecord& plan);

/// The plan's problem, with the tensors of `input`; as resolve_source. invalid_argument where the
/// tensors are of another problem.
Result<Source> resolve_source(const PlanRecord& plan, const std::string& input,
                              std::optional<uint64_t> seed);

/// Writes the plan of a call.
Status save_plan(OutputFile& file, const Call& call);

}  // namespace longspan::tool
