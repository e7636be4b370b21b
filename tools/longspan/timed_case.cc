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
constexpr double kRoundMicroseconds = 30e3;  // of one provider
constexpr int kMostIterations = 50;

/// One provider in one direction.
struct TimedProvider {
  std::string name;
  std::unique_ptr<BenchGroup> group;
  int iterations = 1;
  std::vector<double> microseconds;
};

/// Forward runs alone, and backward behind a forward that is the same for all providers: what ran
/// just before, and how hot it left the device, is part of a time.
Options required(Options options, Direction direction, const std::string& provider) {
  const bool forward = direction == Direction::kForward;
  const Routing routing{RoutingMode::kRequire, provider};
  options.forward.routing = forward ? routing : Routing{};
  options.backward.routing = forward ? Routing{} : routing;
  if (forward) options.backward.strategy = kNoStrategy;
  return options;
}

/// Those of the task's providers that offer the direction.
Result<std::vector<TimedProvider>> offering(const CaseTask& task, const Problem& problem,
                                            Direction direction) {
  std::vector<TimedProvider> result;
  for (const std::string& name : task.providers) {
    LONGSPAN_TRY(const Explanation explanation,
                 explain(problem, Topology::blocks(1, 1), task.device,
                         required(task.options, direction, name)));
    if (explanation.ok()) result.push_back({.name = name});
  }
  return result;
}

const std::vector<double>& times(const Slice& slice, Direction direction) {
  return direction == Direction::kForward ? slice.forward : slice.backward;
}

Status start(const CaseTask& task, Direction direction, const Inputs& inputs,
             TimedProvider& timed) {
  GroupTask group{.inputs = &inputs,
                  .options = required(task.options, direction, timed.name),
                  .topology = Topology::blocks(1, 1),
                  .device = task.device};
  if (task.device.is_cuda()) group.devices = {task.device};
  LONGSPAN_TRY(timed.group, BenchGroup::make(group, false));
  LONGSPAN_TRY(const Slice cold, timed.group->run({}));
  LONGSPAN_TRY(const Slice warm, timed.group->run({}));
  const double one = std::max(totals(warm).front(), 1.0);
  timed.iterations = static_cast<int>(
      std::clamp(kRoundMicroseconds / one, 1.0, static_cast<double>(kMostIterations)));
  return {};
}

Status run_round(Direction direction, TimedProvider& timed) {
  LONGSPAN_TRY(const Slice slice, timed.group->run({.warmup = 1, .iterations = timed.iterations}));
  const std::vector<double>& taken = times(slice, direction);
  timed.microseconds.insert(timed.microseconds.end(), taken.begin(), taken.end());
  return {};
}

/// Without times where fewer than two providers offer the direction.
Result<RoutingRow> time_direction(const CaseTask& task, const Problem& problem,
                                  const Inputs& inputs, Direction direction) {
  RoutingRow row;
  LONGSPAN_TRY(std::vector<TimedProvider> all, offering(task, problem, direction));
  if (all.size() < 2) return row;
  for (TimedProvider& timed : all) LONGSPAN_CHECK_OK(start(task, direction, inputs, timed));
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      LONGSPAN_CHECK_OK(run_round(direction, all[(round + i) % all.size()]));
    }
  }
  const int64_t rows = all.front().group->call().schedule(direction).tiles.capacity_q;
  row.measured = routing_case(problem, direction, task.device, rows);
  for (const TimedProvider& timed : all) {
    row.times.push_back({timed.name, median(timed.microseconds)});
  }
  std::ranges::stable_sort(row.times, {}, &MeasuredTime::microseconds);
  return row;
}

}  // namespace

Result<std::vector<RoutingRow>> time_case(const CaseTask& task) {
  LONGSPAN_TRY(const Source source, resolve_source(task.problem, "", std::nullopt));
  std::vector<Direction> directions = {Direction::kForward};
  if (task.options.backward.strategy != kNoStrategy) directions.push_back(Direction::kBackward);
  LONGSPAN_TRY(const Inputs inputs, make_inputs(source, directions.size() == 1));
  std::vector<RoutingRow> rows;
  for (const Direction direction : directions) {
    LONGSPAN_TRY(RoutingRow row, time_direction(task, source.problem, inputs, direction));
    if (!row.times.empty()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace longspan::tool
