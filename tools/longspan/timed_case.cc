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

/// One provider, which computes the directions that it offers.
struct TimedProvider {
  std::string name;
  bool forward = false;
  bool backward = false;
  std::unique_ptr<BenchGroup> group;
  int iterations = 1;
  std::vector<double> forward_us, backward_us;

  const std::vector<double>& times(Direction direction) const {
    return direction == Direction::kForward ? forward_us : backward_us;
  }
};

Options required(Options options, const TimedProvider& timed) {
  const Routing routing{RoutingMode::kRequire, timed.name};
  options.forward.routing = timed.forward ? routing : Routing{};
  options.backward.routing = timed.backward ? routing : Routing{};
  if (!timed.backward) options.backward.strategy = kNoStrategy;
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
    LONGSPAN_TRY(timed.forward, offers(task, problem, {.name = name, .forward = true}));
    if (task.options.backward.strategy != kNoStrategy) {
      LONGSPAN_TRY(timed.backward, offers(task, problem, {.name = name, .backward = true}));
    }
    if (timed.forward || timed.backward) result.push_back(std::move(timed));
  }
  return result;
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
  const double one = std::max(totals(warm).front(), 1.0);
  timed.iterations = static_cast<int>(
      std::clamp(kRoundMicroseconds / one, 1.0, static_cast<double>(kMostIterations)));
  return {};
}

Status run_round(TimedProvider& timed) {
  LONGSPAN_TRY(const Slice slice, timed.group->run({.warmup = 1, .iterations = timed.iterations}));
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  if (timed.forward) append(timed.forward_us, slice.forward);
  if (timed.backward) append(timed.backward_us, slice.backward);
  return {};
}

RoutingRow row_of(const Problem& problem, Direction direction, const Device& device,
                  const std::vector<TimedProvider>& all) {
  RoutingRow row;
  for (const TimedProvider& timed : all) {
    if (timed.times(direction).empty()) continue;
    const int64_t rows = timed.group->call().schedule(direction).tiles.capacity_q;
    row.measured = routing_case(problem, direction, device, rows);
    row.times.push_back({timed.name, median(timed.times(direction))});
  }
  std::ranges::stable_sort(row.times, {}, &MeasuredTime::microseconds);
  return row;
}

}  // namespace

Result<std::vector<RoutingRow>> time_case(const CaseTask& task) {
  LONGSPAN_TRY(const Source source, resolve_source(task.problem, "", std::nullopt));
  LONGSPAN_TRY(std::vector<TimedProvider> all, offering(task, source.problem));
  if (all.size() < 2) return std::vector<RoutingRow>();
  const bool any_backward = std::ranges::any_of(all, &TimedProvider::backward);
  LONGSPAN_TRY(const Inputs inputs, make_inputs(source, !any_backward));
  for (TimedProvider& timed : all) LONGSPAN_CHECK_OK(start(task, inputs, timed));
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      LONGSPAN_CHECK_OK(run_round(all[(round + i) % all.size()]));
    }
  }
  std::vector<RoutingRow> rows;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    RoutingRow row = row_of(source.problem, direction, task.device, all);
    if (row.times.size() > 1) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace longspan::tool
