#include "engine/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/choose_strategies.h"
#include "engine/gathering.h"
#include "engine/pulling.h"
#include "guard/predicate.h"
#include "longspan/routing_table.h"
#include "plan/select.h"

namespace longspan {
namespace {

/// What promises say of the layout and of strategies.
Status check_promises(const Problem& problem, const Options& options) {
  LONGSPAN_CHECK_OK(guard::check_layout(problem, options.promises));
  if (!std::ranges::count(options.promises, Promise::kPitchedAllGather)) return {};
  if (options.forward.strategy == "all_gather") return {};
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("promise pitched_all_gather with forward strategy {}: ask for all_gather",
                  options.forward.strategy),
      "engine"};
}

/// Backward differentiates what forward computes.
Status check_modification(const Problem& problem) {
  if (!problem.modification) return {};
  const Modification& m = *problem.modification.functions;
  if (!m.score || m.derivative) return {};
  return Error{ErrorCode::kInvalidArgument,
               "modification: backward needs the derivative of the score function; set "
               "Modification::derivative, or prepare forward alone (backward strategy \"none\")",
               "problem"};
}

/// A rank's tile problem in both directions, of the ranks that have tiles.
Result<std::vector<TileProblem>> tile_problems(const Setting& setting, Direction direction) {
  const std::string& strategy =
      direction == Direction::kForward ? setting.forward : setting.backward;
  LONGSPAN_TRY(const Strategy* const found, find_strategy(strategy));
  std::vector<TileProblem> problems;
  for (const int rank : sample_ranks(setting.topology.ranks())) {
    LONGSPAN_TRY(const Schedule schedule, found->build(setting, direction, rank));
    if (schedule.tiles.heads_q > 0) problems.push_back(schedule.tiles);
  }
  return problems;
}

int64_t most_rows(std::span<const TileProblem> problems) {
  int64_t most = 0;
  for (const TileProblem& p : problems) most = std::max(most, p.capacity_q);
  return most;
}

Status choose_provider(const Setting& setting, Direction direction, const Device& device,
                       const Options& options, PlanCache& cache, Selection& selection) {
  const Routing& routing =
      (direction == Direction::kForward ? options.forward : options.backward).routing;
  LONGSPAN_TRY(const std::vector<TileProblem> problems, tile_problems(setting, direction));
  const bool merges = setting.topology.ranks() > 1;
  const auto table = routing_table(options);
  const RoutingCase asked = routing_case(setting.problem, direction, device, most_rows(problems));
  ProviderChoice choice =
      select_provider(cache, providers(),
                      {.problems = problems,
                       .device = device,
                       .routing = routing,
                       .refuse_16bit_partials = options.require_fp32_partials && merges,
                       .measured = table->find(asked)});
  selection.provider = choice.provider;
  selection.provider_reason = std::move(choice.reason);
  selection.declines.insert(selection.declines.end(), choice.declines.begin(),
                            choice.declines.end());
  return {};
}

/// Lets forward's all_gather be priced as the pulling launch that it would be.
Status expect_pulls(Setting& setting, const Device& device, const Options& options,
                    PlanCache& cache) {
  if (options.forward.strategy != "auto") return {};
  Setting tried = setting;
  tried.forward = "all_gather";
  tried.backward = options.backward.strategy;
  LONGSPAN_TRY(const Strategy* const strategy, find_strategy(tried.forward));
  if (declined(strategy->consider(tried, Direction::kForward)) != nullptr) return {};
  Selection forward;
  LONGSPAN_CHECK_OK(choose_provider(tried, Direction::kForward, device, options, cache, forward));
  LONGSPAN_CHECK_OK(choose_pulls(tried, device, forward));
  setting.pulls = tried.pulls;
  return {};
}

/// Lets backward's all_gather be priced as it would run.
Status expect_gathers(Setting& setting, const Device& device, const Options& options,
                      PlanCache& cache) {
  if (options.backward.strategy != "auto" || !setting.whole) return {};
  Setting tried = setting;
  tried.forward = tried.backward = "all_gather";
  LONGSPAN_TRY(const Strategy* const strategy, find_strategy(tried.backward));
  if (declined(strategy->consider(tried, Direction::kBackward)) != nullptr) return {};
  Selection backward;
  LONGSPAN_CHECK_OK(choose_provider(tried, Direction::kBackward, device, options, cache, backward));
  LONGSPAN_CHECK_OK(choose_gathers(tried, device, options.rates, backward));
  setting.gathers_whole = tried.gathers_whole;
  return {};
}

}  // namespace

std::shared_ptr<const RoutingTable> routing_table(const Options& options) {
  return options.routing_table ? options.routing_table : measured_routing_table();
}

Result<Setting> make_setting(const Problem& problem, const Topology& topology, const Device& device,
                             const Options& options) {
  if (topology.ranks() < 1) {
    return Error{ErrorCode::kInvalidArgument, "ranks 0: at least 1 is needed", "engine"};
  }
  Setting setting;
  LONGSPAN_TRY(setting.problem, validated(problem));
  setting.topology = topology;
  LONGSPAN_TRY(const PartitionChoice chosen,
               choose_partition(setting.problem, topology.ranks(), options.partition));
  LONGSPAN_TRY(setting.partition, Partition::make(setting.problem, chosen.kind, topology.ranks()));
  LONGSPAN_CHECK_OK(check_promises(setting.problem, options));
  setting.problem.device_lengths = setting.problem.device_lengths && options.promises.empty();
  setting.whole = device.is_cuda() && !setting.problem.device_lengths;
  setting.head_slices = std::max(options.head_slices, 1);
  setting.score_bytes = options.score_bytes;
  return setting;
}

Result<Choice> choose(const Problem& problem, const Topology& topology, const Device& device,
                      const Options& options, PlanCache& cache, bool lends) {
  Choice choice;
  Explanation& explanation = choice.explanation;
  Setting& setting = choice.setting;
  LONGSPAN_TRY(setting, make_setting(problem, topology, device, options));
  explanation.forward_only = options.backward.strategy == kNoStrategy;
  if (!explanation.forward_only) LONGSPAN_CHECK_OK(check_modification(setting.problem));
  LONGSPAN_TRY(PartitionChoice chosen,
               choose_partition(setting.problem, topology.ranks(), options.partition));
  explanation.partition = chosen.kind;
  explanation.partition_reason = std::move(chosen.reason);
  const bool may_pull = lends && options.pull && topology.ranks() > 1;
  if (may_pull) LONGSPAN_CHECK_OK(expect_pulls(setting, device, options, cache));
  if (topology.ranks() > 1) {
    LONGSPAN_CHECK_OK(expect_gathers(setting, device, options, cache));
  }
  LONGSPAN_CHECK_OK(choose_strategies(setting, device, options, explanation));
  setting.pulls = setting.gathers_whole = false;
  if (!explanation.forward.strategy) return choice;
  if (!explanation.forward_only && !explanation.backward.strategy) return choice;
  setting.forward = explanation.forward.strategy->name;
  setting.backward = explanation.forward_only ? kNoStrategy : explanation.backward.strategy->name;
  LONGSPAN_CHECK_OK(
      choose_provider(setting, Direction::kForward, device, options, cache, explanation.forward));
  if (may_pull) LONGSPAN_CHECK_OK(choose_pulls(setting, device, explanation.forward));
  if (explanation.forward_only) return choice;
  LONGSPAN_CHECK_OK(
      choose_provider(setting, Direction::kBackward, device, options, cache, explanation.backward));
  LONGSPAN_CHECK_OK(choose_gathers(setting, device, options.rates, explanation.backward));
  return choice;
}

std::string Explanation::text() const {
  std::string text;
  for (const Selection* selection : {&forward, &backward}) {
    if (selection == &backward && forward_only) continue;
    if (selection->strategy && selection->provider) continue;
    for (const NamedDecline& d : selection->declines) {
      // A strategy that was passed over is no reason when another one was found.
      if (selection->strategy && find_strategy(d.name).ok()) continue;
      text += fmt::format("{}{} {} declines ({}): {}", text.empty() ? "" : "; ", d.direction,
                          d.name, name(d.decline.code), d.decline.detail);
    }
  }
  return text;
}

Result<Explanation> explain(const Problem& problem, const Topology& topology, const Device& device,
                            const Options& options) {
  const std::shared_ptr<PlanCache> cache = options.plans ? options.plans : make_plan_cache();
  LONGSPAN_TRY(Choice choice, choose(problem, topology, device, options, *cache));
  return std::move(choice.explanation);
}

}  // namespace longspan
