#include "plan_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "arguments.h"

namespace longspan::tool {
namespace {

Error usage(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "usage"};
}

}  // namespace

Result<PlanFile> read_plan(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  PlanFile plan;
  plan.bytes.resize(kMostPlanBytes + 1);  // one more shows that a file is too long
  file.read(plan.bytes.data(), static_cast<std::streamsize>(plan.bytes.size()));
  if (!file.is_open() || file.bad()) {
    return usage(fmt::format("--plan '{}' cannot be read: {}", path, std::strerror(errno)));
  }
  plan.bytes.resize(static_cast<size_t>(file.gcount()));
  auto record = PlanRecord::from_bytes(plan.bytes);
  if (!record.ok()) return usage(fmt::format("--plan '{}': {}", path, record.error().message));
  plan.record = std::move(*record);
  return plan;
}

Result<Topology> planned_topology(const PlanRecord& plan) {
  if (plan.node_of_rank.size() <= kMostRunRanks) return Topology{plan.node_of_rank};
  return usage(fmt::format("the plan is of {} ranks; a run has at most {}: record it with fewer",
                           plan.node_of_rank.size(), kMostRunRanks));
}

Result<Source> resolve_source(const PlanRecord& plan, const std::string& input,
                              std::optional<uint64_t> seed) {
  LONGSPAN_TRY(Problem problem, parse_problem(plan.problem));
  LONGSPAN_TRY(Source source, resolve_source(plan.problem, input, seed));
  source.problem.dropout_seed = problem.dropout_seed;  // not that of random inputs
  if (source.problem == problem) return source;
  return usage(
      fmt::format("--input {} is of the problem \"{}\" and the plan of \"{}\"; give tensors "
                  "of the plan's",
                  input, source.problem.text(), plan.problem));
}

Status save_plan(OutputFile& file, const Call& call) {
  LONGSPAN_TRY(const PlanRecord record, call.record());
  LONGSPAN_CHECK_OK(file.write(record.to_bytes()));
  return file.commit();
}

}  // namespace longspan::tool
