#include <fmt/format.h>

#include <optional>
#include <vector>

#include "commands.h"
#include "inputs.h"
#include "options.h"
#include "output_file.h"
#include "setting.h"

namespace longspan::tool {
namespace {

/// Schedules of all ranks of one direction.
struct Planned {
  Setting setting;
  Rates rates;
  std::string reason;  // of the strategy
  std::vector<Schedule> schedules;
  std::vector<NamedDecline> declines;
};

Error no_strategy(const Explanation& explanation) {
  return {ErrorCode::kUnsupported, explanation.text(), "schedule"};
}

Result<Planned> plan(const Arguments& arguments) {
  LONGSPAN_TRY(const Topology topology, make_topology(arguments));
  LONGSPAN_TRY(const Options options, make_options(arguments));
  LONGSPAN_TRY(const Source source, resolve_source(arguments.problem, arguments.input, {}));
  LONGSPAN_CHECK_OK(check_keys(source.problem, options.backward.strategy == kNoStrategy));
  LONGSPAN_TRY(const Device device, described_device(arguments.device));
  LONGSPAN_TRY(const Explanation explanation, explain(source.problem, topology, device, options));
  const bool backward = explanation.forward_only || explanation.backward.strategy != nullptr;
  if (explanation.forward.strategy == nullptr || !backward) return no_strategy(explanation);
  const StrategyNames names = chosen_names(explanation);
  const bool ahead = arguments.direction == Direction::kForward;
  const Selection& selection = ahead ? explanation.forward : explanation.backward;
  Planned planned{.setting = {},
                  .rates = options.rates,
                  .reason = selection.strategy_reason,
                  .schedules = {},
                  .declines = selection.declines};
  LONGSPAN_TRY(planned.setting, make_setting(source.problem, topology, device, options));
  planned.setting.forward = names.forward;
  planned.setting.backward = names.backward;
  LONGSPAN_TRY(planned.schedules,
               build_schedules(planned.setting, *selection.strategy, arguments.direction,
                               all_ranks(topology.ranks())));
  return planned;
}

Json rank_json(const Schedule& schedule, const Cost& cost) {
  return {{"rank", schedule.rank},
          {"steps", schedule.steps.size()},
          {"tiles", schedule.tile_count()},
          {"flops", schedule.flops()},
          {"bytes_sent", schedule.bytes_sent()},
          {"workspace_bytes", schedule.workspace_bytes},
          {"seconds", cost.seconds}};
}

std::string printed(const Arguments& arguments, const Planned& planned) {
  if (!arguments.all_ranks) {
    return print(planned.schedules[static_cast<size_t>(arguments.rank)]);
  }
  std::string text;
  for (const Schedule& schedule : planned.schedules) text += print(schedule) + "\n";
  return text;
}

Outcome report(const Arguments& arguments, const Planned& planned, const std::vector<Cost>& costs) {
  const Status proof = check(planned.setting, planned.schedules);
  const Schedule& first = planned.schedules.front();
  const std::string verdict =
      proof.ok() ? fmt::format("PASS 1 checks: the schedules of all {} ranks are proved",
                               planned.schedules.size())
                 : "FAIL 1 of 1 checks: " + proof.error().text();
  Outcome outcome;
  outcome.exit_code = proof.ok() ? kPass : kCheckFailed;
  outcome.json = report_head(proof.ok() ? "pass" : "fail", planned.setting.problem.text(),
                             first.ranks, verdict);
  outcome.json["direction"] = name(arguments.direction);
  outcome.json["strategy"] = first.strategy;
  outcome.json["strategy_reason"] = planned.reason;
  outcome.json["partition"] = name(planned.setting.partition.kind());
  outcome.json["schedules"] = Json::array();
  for (size_t rank = 0; rank < costs.size(); ++rank) {
    outcome.json["schedules"].push_back(rank_json(planned.schedules[rank], costs[rank]));
  }
  outcome.json["declines"] = declines_json(planned.declines);
  outcome.text = printed(arguments, planned) + verdict + "\n";
  if (!proof.ok()) outcome.error = "longspan: " + verdict + "\n";
  if (replace_non_finite(outcome.json)) outcome.json["status"] = "fail";
  return outcome;
}

Result<Outcome> make_schedule(const Arguments& arguments) {
  std::optional<OutputFile> file;
  if (!arguments.plot.empty()) {
    LONGSPAN_TRY(file, OutputFile::open(arguments.plot));
  }
  LONGSPAN_TRY(const Planned planned, plan(arguments));
  const std::vector<Cost> costs = cost(planned.schedules, planned.setting.topology, planned.rates);
  if (file) {
    LONGSPAN_CHECK_OK(file->write(plot(planned.schedules, costs)));
    LONGSPAN_CHECK_OK(file->commit());
  }
  return report(arguments, planned, costs);
}

}  // namespace

Outcome schedule_command(const Arguments& arguments) {
  auto outcome = make_schedule(arguments);
  if (outcome.ok()) return *std::move(outcome);
  return failed(outcome.error(), arguments.problem, arguments.rank_count());
}

}  // namespace longspan::tool
