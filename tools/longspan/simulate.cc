#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "commands.h"
#include "inputs.h"
#include "options.h"
#include "setting.h"

namespace longspan::tool {
namespace {

/// Up to so many ranks are costed together, with the waits for each other.
constexpr int kMostTogether = 64;
/// Ranks that are costed one by one beyond that.
constexpr int kSample = 9;

struct Simulation {
  Problem problem;
  Setting setting;  // its strategies are named per row
  std::string partition_reason;
  Rates rates;
  bool forward_only = false;
};

/// One line of the table.
struct Row {
  std::string strategy;
  Direction direction = Direction::kForward;
  double seconds = 0;  // of the slowest rank, and likewise below
  double compute_seconds = 0;
  double transfer_seconds = 0;
  int64_t bytes_sent = 0;
  int64_t peak_bytes = 0;
  double efficiency = 0;  // time of the counted FLOPs alone, spread evenly / seconds
};

Result<Simulation> prepare(const Arguments& arguments) {
  LONGSPAN_TRY(const Topology topology, make_topology(arguments));
  LONGSPAN_TRY(const Options options, make_options(arguments));
  LONGSPAN_TRY(const Device device, described_device(arguments.device));
  LONGSPAN_TRY(Source source, resolve_source(arguments.problem, arguments.input, {}));
  const bool forward_only = arguments.backward.strategy == kNoStrategy;
  LONGSPAN_CHECK_OK(check_keys(source.problem, forward_only));
  LONGSPAN_TRY(PartitionChoice choice,
               choose_partition(source.problem, topology.ranks(), options.partition));
  LONGSPAN_TRY(Setting setting, make_setting(source.problem, topology, device, options));
  return Simulation{std::move(source.problem), std::move(setting), std::move(choice.reason),
                    options.rates, forward_only};
}

Setting setting_of(const Simulation& simulation, std::string_view forward,
                   std::string_view backward) {
  Setting setting = simulation.setting;
  setting.forward = forward;
  setting.backward = backward;
  return setting;
}

/// The strategy for both directions; where it does not offer the other one, the first that does.
Setting pair_with_partner(const Simulation& simulation, const Strategy& strategy,
                          Direction direction) {
  if (simulation.forward_only) return setting_of(simulation, strategy.name, kNoStrategy);
  const bool ahead = direction == Direction::kForward;
  const Direction other = ahead ? Direction::kBackward : Direction::kForward;
  const auto paired = [&](const Strategy& partner) {
    return ahead ? setting_of(simulation, strategy.name, partner.name)
                 : setting_of(simulation, partner.name, strategy.name);
  };
  Setting same = paired(strategy);
  const Verdict own = strategy.consider(same, other);
  if (declined(own) == nullptr) return same;
  for (const Strategy* partner : strategies()) {
    Setting setting = paired(*partner);
    const Verdict verdict = partner->consider(setting, other);
    if (declined(verdict) == nullptr) return setting;
  }
  return same;
}

std::vector<Cost> costs_of(const Simulation& simulation, const std::vector<Schedule>& schedules) {
  if (simulation.setting.topology.ranks() <= kMostTogether) {
    return cost(schedules, simulation.setting.topology, simulation.rates);
  }
  std::vector<Cost> costs;
  for (const Schedule& schedule : schedules) {
    costs.push_back(cost(schedule, simulation.setting.topology, simulation.rates));
  }
  return costs;
}

std::vector<int> costed_ranks(const Simulation& simulation) {
  const int ranks = simulation.setting.topology.ranks();
  return ranks <= kMostTogether ? all_ranks(ranks) : sample_ranks(ranks, kSample);
}

Result<Row> simulate_one(const Simulation& simulation, const Setting& setting,
                         const Strategy& strategy, Direction direction) {
  LONGSPAN_TRY(const std::vector<Schedule> schedules,
               build_schedules(setting, strategy, direction, costed_ranks(simulation)));
  Row row{.strategy = std::string(strategy.name), .direction = direction};
  for (const Cost& cost : costs_of(simulation, schedules)) {
    row.seconds = std::max(row.seconds, cost.seconds);
    row.compute_seconds = std::max(row.compute_seconds, cost.compute_seconds);
    row.transfer_seconds = std::max(row.transfer_seconds, cost.transfer_seconds);
    row.bytes_sent = std::max(row.bytes_sent, cost.bytes_sent);
    row.peak_bytes = std::max(row.peak_bytes, cost.peak_bytes);
  }
  const double rate = direction == Direction::kForward ? simulation.rates.forward_flops
                                                       : simulation.rates.backward_flops;
  const double ideal =
      simulation.problem.flops(direction) / rate / simulation.setting.topology.ranks();
  row.efficiency = row.seconds > 0 ? ideal / row.seconds : 0;
  return row;
}

struct Table {
  std::vector<Row> rows;
  std::vector<NamedDecline> declines;
};

Result<Table> simulate_all(const Simulation& simulation) {
  Table table;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    if (simulation.forward_only && direction == Direction::kBackward) break;
    const size_t first = table.rows.size();
    for (const Strategy* strategy : strategies()) {
      const Setting setting = pair_with_partner(simulation, *strategy, direction);
      const Verdict verdict = strategy->consider(setting, direction);
      if (const Decline* decline = declined(verdict)) {
        table.declines.push_back(
            {std::string(strategy->name), std::string(name(direction)), *decline});
        continue;
      }
      LONGSPAN_TRY(Row row, simulate_one(simulation, setting, *strategy, direction));
      table.rows.push_back(std::move(row));
    }
    std::stable_sort(table.rows.begin() + static_cast<std::ptrdiff_t>(first), table.rows.end(),
                     [](const Row& a, const Row& b) { return a.seconds < b.seconds; });
  }
  return table;
}

std::string method_text(const Simulation& simulation) {
  const int ranks = simulation.setting.topology.ranks();
  if (ranks <= kMostTogether) return fmt::format("all {} ranks together", ranks);
  return fmt::format(
      "a sample of {} of {} ranks, evenly spread from the first to the last, each alone", kSample,
      ranks);
}

std::string table_text(const Simulation& simulation, const Table& table) {
  std::string text =
      fmt::format("problem    {}\nranks      {} on {} node{}\n", simulation.problem.text(),
                  simulation.setting.topology.ranks(), simulation.setting.topology.nodes(),
                  simulation.setting.topology.nodes() == 1 ? "" : "s");
  text += fmt::format("partition  {} ({})\n", name(simulation.setting.partition.kind()),
                      simulation.partition_reason);
  text +=
      fmt::format("costed     {}; the slowest rank of each is shown\n\n", method_text(simulation));
  text += fmt::format("{:<9} {:<14} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}\n", "direction",
                      "strategy", "time", "compute", "transfer", "sent", "peak", "efficiency");
  for (const Row& row : table.rows) {
    text += fmt::format("{:<9} {:<14} {:>12} {:>12} {:>12} {:>12} {:>12} {:>9.1f}%\n",
                        name(row.direction), row.strategy, duration_text(row.seconds),
                        duration_text(row.compute_seconds), duration_text(row.transfer_seconds),
                        bytes_text(static_cast<double>(row.bytes_sent)),
                        bytes_text(static_cast<double>(row.peak_bytes)), 100 * row.efficiency);
  }
  for (const NamedDecline& decline : table.declines) {
    text += fmt::format("{:<9} {:<14} declined ({}): {}\n", decline.direction, decline.name,
                        name(decline.decline.code), decline.decline.detail);
  }
  return text;
}

Json table_json(const Simulation& simulation, const Table& table) {
  Json json = report_head("pass", simulation.problem.text(), simulation.setting.topology.ranks(),
                          "costed " + method_text(simulation));
  json["nodes"] = simulation.setting.topology.nodes();
  json["partition"] = name(simulation.setting.partition.kind());
  json["sampled_ranks"] = costed_ranks(simulation).size();
  json["rows"] = Json::array();
  for (const Row& row : table.rows) {
    json["rows"].push_back({{"strategy", row.strategy},
                            {"direction", name(row.direction)},
                            {"seconds", row.seconds},
                            {"compute_seconds", row.compute_seconds},
                            {"transfer_seconds", row.transfer_seconds},
                            {"bytes_sent", row.bytes_sent},
                            {"peak_bytes", row.peak_bytes},
                            {"efficiency", row.efficiency}});
  }
  json["declines"] = declines_json(table.declines);
  return json;
}

bool has_direction(const Table& table, Direction direction) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [direction](const Row& row) { return row.direction == direction; });
}

Outcome report(const Simulation& simulation, const Table& table) {
  Outcome outcome;
  const bool backward = simulation.forward_only || has_direction(table, Direction::kBackward);
  if (!has_direction(table, Direction::kForward) || !backward) {
    const char* directions = simulation.forward_only ? "forward" : "both directions";
    outcome =
        failed({ErrorCode::kUnsupported,
                fmt::format("no strategy offers {} of this problem", directions), "simulate"},
               simulation.problem.text(), simulation.setting.topology.ranks(), table.declines);
  } else {
    outcome.json = table_json(simulation, table);
    if (replace_non_finite(outcome.json)) {
      outcome.exit_code = kCheckFailed;
      outcome.json["status"] = "fail";
      outcome.error = "longspan: a cost is not finite; see --rates\n";
    }
  }
  outcome.text = table_text(simulation, table);
  return outcome;
}

}  // namespace

Outcome simulate_command(const Arguments& arguments) {
  const auto simulation = prepare(arguments);
  if (!simulation.ok())
    return failed(simulation.error(), arguments.problem, arguments.rank_count());
  const auto table = simulate_all(*simulation);
  if (table.ok()) return report(*simulation, *table);
  return failed(table.error(), simulation->problem.text(), arguments.rank_count());
}

}  // namespace longspan::tool
