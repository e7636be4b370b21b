#include "timed_case.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "bench_group.h"
#include "bench_report.h"
#include "inputs.h"

namespace longspan::tool {
namespace {

constexpr int kRounds = 5;
constexpr double kRoundMicroseconds = 30e3;  // of one provider in one direction
constexpr int kMostIterations = 50;

constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward};

struct TimedDirection {
  bool offered = false;
  int iterations = 1;  // of a round
  std::vector<double> us;
};

/// One provider, which computes the directions that it offers.
struct TimedProvider {
  std::string name;
  TimedDirection forward, backward;
  std::unique_ptr<BenchGroup> group;

  const TimedDirection& of(Direction direction) const {
    return direction == Direction::kForward ? forward : backward;
  }
  TimedDirection& of(Direction direction) {
    return direction == Direction::kForward ? forward : backward;
  }
};

Options required(Options options, const TimedProvider& timed) {
  const Routing routing{RoutingMode::kRequire, timed.name};
  options.forward.routing = timed.forward.offered ? routing : Routing{};
  options.backward.routing = timed.backward.offered ? routing : Routing{};
  if (!timed.backward.offered) options.backward.strategy = kNoStrategy;
  return options;
}

Result<bool> offers(const CaseTask& task, const Problem& problem, const TimedProvider& asked) {
  LONGSPAN_TRY(const Explanation explanation, explain(problem, Topology::blocks(1, 1), task.device,
                                                      required(task.options, asked)));
  return explanation.ok();
}

/// Those of the task's providers that offer a direction.
Result<std::vector<TimedProvider>> offering(const CaseTask& task, const Problem& problem) {
  std::vector<TimedProvider> result;
  for (const std::string& name : task.providers) {
    TimedProvider timed{.name = name};
    LONGSPAN_TRY(timed.forward.offered,
                 offers(task, problem, {.name = name, .forward = {.offered = true}}));
    if (task.options.backward.strategy != kNoStrategy) {
      LONGSPAN_TRY(timed.backward.offered,
                   offers(task, problem, {.name = name, .backward = {.offered = true}}));
    }
    if (timed.forward.offered || timed.backward.offered) result.push_back(std::move(timed));
  }
  return result;
}

int iterations_of(const std::vector<double>& once) {
  if (once.empty()) return 0;
  const double wanted = kRoundMicroseconds / std::max(once.front(), 1.0);
  return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostIterations)));
}

Status start(const CaseTask& task, const Inputs& inputs, TimedProvider& timed) {
  GroupTask group{.inputs = &inputs,
                  .options = required(task.options, timed),
                  .topology = Topology::blocks(1, 1),
                  .device = task.device};
  if (task.device.is_cuda()) group.devices = {task.device};
  LONGSPAN_TRY(timed.group, BenchGroup::make(group, false));
  LONGSPAN_TRY(const Slice cold, timed.group->run({}));
  LONGSPAN_TRY(const Slice warm, timed.group->run({}));
  timed.forward.iterations = iterations_of(warm.forward);
  timed.backward.iterations = iterations_of(warm.backward);
  return {};
}

Status run_round(TimedProvider& timed, Direction direction) {
  TimedDirection& asked = timed.of(direction);
  if (!asked.offered) return {};
  LONGSPAN_TRY(const Slice slice,
               timed.group->run({.warmup = 1, .iterations = asked.iterations, .only = direction}));
  const auto& times = direction == Direction::kForward ? slice.forward : slice.backward;
  asked.us.insert(asked.us.end(), times.begin(), times.end());
  return {};
}

RoutingRow row_of(const Problem& problem, Direction direction, const Device& device,
                  const std::vector<TimedProvider>& all) {
  RoutingRow row;
  for (const TimedProvider& timed : all) {
    if (timed.of(direction).us.empty()) continue;
    const int64_t rows = timed.group->call().schedule(direction).tiles.capacity_q;
    row.measured = routing_case(problem, direction, device, rows);
    row.times.push_back({timed.name, median(timed.of(direction).us)});
  }
  std::ranges::stable_sort(row.times, {}, &MeasuredTime::microseconds);
  return row;
}

}  // namespace

Result<std::vector<RoutingRow>> time_case(const CaseTask& task) {
  LONGSPAN_TRY(const Source source, resolve_source(task.problem, "", std::nullopt));
  LONGSPAN_TRY(std::vector<TimedProvider> all, offering(task, source.problem));
  if (all.size() < 2) return std::vector<RoutingRow>();
  const bool any_backward =
      std::ranges::any_of(all, [](const TimedProvider& t) { return t.backward.offered; });
  LONGSPAN_TRY(const Inputs inputs, make_inputs(source, !any_backward));
  for (TimedProvider& timed : all) LONGSPAN_CHECK_OK(start(task, inputs, timed));
  std::vector<RoutingRow> rows;
  for (const Direction direction : kDirections) {
    for (size_t turn = 0; turn < kRounds * all.size(); ++turn) {
      const size_t round = turn / all.size();
      LONGSPAN_CHECK_OK(run_round(all[(round + turn) % all.size()], direction));
    }
    RoutingRow row = row_of(source.problem, direction, task.device, all);
    if (row.times.size() > 1) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace longspan::tool
