#include "engine/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "engine/pulling.h"
#include "guard/predicate.h"
#include "longspan/routing_table.h"
#include "plan/select.h"

namespace longspan {
namespace {

/// Ranks that stand for all when costs are compared and providers asked.
std::vector<int> sample_ranks(int ranks) {
  constexpr int kMost = 8;
  std::vector<int> sample;
  const int count = std::min(ranks, kMost);
  for (int i = 0; i < count; ++i) {
    sample.push_back(count == 1 ? 0 : static_cast<int>(int64_t{ranks - 1} * i / (count - 1)));
  }
  return sample;
}

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

/// Strategies that may run a direction; the others' declines go to the selection.
Result<std::vector<const Strategy*>> candidates(const std::string& wanted, const Setting& setting,
                                                Direction direction, Selection& selection) {
  std::vector<const Strategy*> result;
  if (wanted != "auto") {
    LONGSPAN_TRY(const Strategy* const strategy, find_strategy(wanted));
    result = {strategy};
  } else {
    result.assign(strategies().begin(), strategies().end());
  }
  std::erase_if(result, [&](const Strategy* strategy) {
    const Verdict verdict = strategy->consider(setting, direction);
    const Decline* decline = declined(verdict);
    if (decline == nullptr) return false;
    selection.declines.push_back(
        {std::string(strategy->name), std::string(name(direction)), *decline});
    return true;
  });
  return result;
}

/// Prices strategies by the slowest sampled rank.
class Pricing {
 public:
  Pricing(Setting& setting, const Rates& rates)
      : setting_(setting), rates_(rates), ranks_(sample_ranks(setting.topology.ranks())) {}

  /// Forward: `after_same` says whether a backward follows (of the same strategy).
  Result<double> seconds(const Strategy& strategy, Direction direction, bool after_same) {
    const auto key = std::tuple(strategy.name, direction, after_same, setting_.head_slices);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    setting_.forward = after_same ? strategy.name : std::string_view("other");
    setting_.backward = strategy.name;
    if (direction == Direction::kForward) {
      setting_.forward = strategy.name;
      if (!after_same) setting_.backward = kNoStrategy;
    }
    double slowest = 0;
    for (const int rank : ranks_) {
      LONGSPAN_TRY(const Schedule schedule, strategy.build(setting_, direction, rank));
      slowest = std::max(slowest, cost(schedule, setting_.topology, rates_).seconds);
    }
    known_.emplace(key, slowest);
    return slowest;
  }

 private:
  Setting& setting_;
  const Rates& rates_;
  std::vector<int> ranks_;
  std::map<std::tuple<std::string_view, Direction, bool, int>, double> known_;
};

std::string reason(const std::string& wanted, int ranks, double seconds) {
  if (wanted != "auto") return "as asked";
  if (ranks == 1) return "one rank: nothing moves";
  return fmt::format("least modelled time, {:.3g} ms", seconds * 1e3);
}

/// Strategies of both directions and their modelled times; backward is null where it is not wanted.
struct Pair {
  const Strategy* forward = nullptr;
  const Strategy* backward = nullptr;
  double forward_seconds = 0;
  double backward_seconds = 0;

  double seconds() const { return forward_seconds + backward_seconds; }

  Status price(Pricing& pricing) {
    LONGSPAN_TRY(forward_seconds,
                 pricing.seconds(*forward, Direction::kForward, backward != nullptr));
    if (backward == nullptr) return {};
    LONGSPAN_TRY(backward_seconds,
                 pricing.seconds(*backward, Direction::kBackward, forward == backward));
    return {};
  }
};

/// In how many slices the pair exchanges heads. More of them, which cost the host time, must be
/// worth a hundredth of the modelled time.
Status choose_head_slices(Setting& setting, Pair& best, Pricing& pricing) {
  for (const int slices : {2, 4}) {
    Pair pair = best;
    const int before = std::exchange(setting.head_slices, slices);
    LONGSPAN_CHECK_OK(pair.price(pricing));
    if (pair.seconds() < 0.99 * best.seconds()) {
      best = pair;
      continue;
    }
    setting.head_slices = before;
    if (pair.seconds() == best.seconds()) break;  // it exchanges none, whatever their number
  }
  return {};
}

/// The pair with the least modelled time. What forward keeps depends on backward, so both are
/// chosen together.
Status choose_strategies(Setting& setting, const Device& device, const Options& options,
                         Explanation& explanation) {
  LONGSPAN_TRY(const auto forward, candidates(options.forward.strategy, setting,
                                              Direction::kForward, explanation.forward));
  std::vector<const Strategy*> backward = {nullptr};
  if (!explanation.forward_only) {
    LONGSPAN_TRY(backward, candidates(options.backward.strategy, setting, Direction::kBackward,
                                      explanation.backward));
  }
  Pricing pricing(setting, options.rates);
  const int ranks = setting.topology.ranks();
  const bool slices = options.head_slices == 0 && ranks > 1 && device.is_cuda();
  const bool priced = ranks > 1 && (forward.size() > 1 || backward.size() > 1 || slices);
  std::optional<Pair> best;
  for (const Strategy* f : forward) {
    for (const Strategy* b : backward) {
      Pair pair{f, b};
      if (priced) LONGSPAN_CHECK_OK(pair.price(pricing));
      if (!best || pair.seconds() < best->seconds()) best = pair;
    }
  }
  if (!best) return {};
  if (slices) LONGSPAN_CHECK_OK(choose_head_slices(setting, *best, pricing));
  explanation.head_slices = setting.head_slices;
  explanation.forward.strategy = best->forward;
  explanation.backward.strategy = best->backward;
  explanation.forward.strategy_reason =
      reason(options.forward.strategy, ranks, best->forward_seconds);
  explanation.backward.strategy_reason =
      reason(options.backward.strategy, ranks, best->backward_seconds);
  return {};
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
  LONGSPAN_CHECK_OK(choose_strategies(setting, device, options, explanation));
  if (!explanation.forward.strategy) return choice;
  if (!explanation.forward_only && !explanation.backward.strategy) return choice;
  setting.forward = explanation.forward.strategy->name;
  setting.backward = explanation.forward_only ? kNoStrategy : explanation.backward.strategy->name;
  LONGSPAN_CHECK_OK(
      choose_provider(setting, Direction::kForward, device, options, cache, explanation.forward));
  if (lends && options.pull) LONGSPAN_CHECK_OK(choose_pulls(setting, device, explanation.forward));
  if (explanation.forward_only) return choice;
  LONGSPAN_CHECK_OK(
      choose_provider(setting, Direction::kBackward, device, options, cache, explanation.backward));
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
