// longspan bench: one arm of a comparison, timed at once or on command.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <utility>

#include "bench_report.h"
#include "calibrate.h"
#include "commands.h"
#include "longspan/version.h"
#include "options.h"
#include "setting.h"

namespace longspan::tool {
namespace {

using Clock = std::chrono::steady_clock;

/// Everything of one benchmark; `group` refers to `inputs`.
struct Arm {
  Inputs inputs;
  GroupTask task;
  int gpus = 0;
  BenchAudit audit;
  std::unique_ptr<BenchGroup> group;
};

int count_gpus(const std::vector<Device>& devices) {
  std::vector<int> ordinals;
  for (const Device& device : devices) {
    if (device.is_cuda()) ordinals.push_back(device.ordinal);
  }
  std::sort(ordinals.begin(), ordinals.end());
  return static_cast<int>(std::unique(ordinals.begin(), ordinals.end()) - ordinals.begin());
}

/// Runs an iteration and keeps what it did.
Status take_audit(Arm& arm) {
  LONGSPAN_TRY(const Slice cold, arm.group->run({}));
  std::vector<Counters> before;
  for (const auto& rank : arm.group->ranks()) before.push_back(rank->counters());
  LONGSPAN_TRY(const Slice warm, arm.group->run({}));
  for (size_t i = 0; i < before.size(); ++i) {
    const Counters counters = arm.group->ranks()[i]->counters();
    arm.audit.attend_launches.push_back(counters.attend_launches - before[i].attend_launches);
    arm.audit.fills.push_back(counters.fill_steps - before[i].fill_steps);
    arm.audit.bytes_forward.push_back(counters.bytes_sent_forward);
    arm.audit.bytes_backward.push_back(counters.bytes_sent_backward);
  }
  return {};
}

Result<std::unique_ptr<Arm>> make_arm(const Arguments& arguments) {
  if (arguments.communicator == "mpi") {
    return Error{ErrorCode::kInvalidArgument,
                 "--communicator mpi: bench times ranks of one process; drop it", "usage"};
  }
  auto arm = std::make_unique<Arm>();
  LONGSPAN_TRY(arm->task.topology, make_topology(arguments));
  arm->task.communicator = arguments.communicator;
  LONGSPAN_TRY(arm->task.options, make_options(arguments));
  LONGSPAN_TRY(Source source, resolve_source(arguments.problem, arguments.input, arguments.seed));
  source.uniform_lengths = !arguments.promise.empty();
  LONGSPAN_TRY(arm->task.devices,
               make_devices(arguments, arm->task.topology.ranks(), arguments.threads));
  arm->task.device = arm->task.devices.front();
  arm->gpus = count_gpus(arm->task.devices);
  if (!arm->task.device.is_cuda()) arm->task.devices.clear();
  LONGSPAN_TRY(const Explanation explanation,
               explain(source.problem, arm->task.topology, arm->task.device, arm->task.options));
  if (!explanation.ok()) return Error{ErrorCode::kUnsupported, explanation.text(), "explain"};
  LONGSPAN_TRY(arm->inputs, make_inputs(source, explanation.forward_only));
  arm->task.inputs = &arm->inputs;
  LONGSPAN_TRY(arm->group, BenchGroup::make(arm->task, arguments.graph));
  LONGSPAN_CHECK_OK(take_audit(*arm));
  return arm;
}

Json ready_json(const Arm& arm) {
  return {{"problem", arm.inputs.declared().text()},
          {"version", LONGSPAN_VERSION},
          {"ranks", arm.task.topology.ranks()},
          {"gpus", arm.gpus},
          {"device", arm.gpus == 0 ? arm.task.device.name : arm.task.device.product},
          {"audit", audit_json(*arm.group, arm.audit)},
          {"graph_reason", arm.group->graph_reason()}};
}

/// The same work until `seconds` have passed, for clocks and power to settle.
Result<Json> warm(BenchGroup& group, double seconds) {
  const auto begin = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  constexpr int kMostQueued = 64;
  int64_t iterations = 0;
  int queued = 1;
  double last = 0;
  do {
    LONGSPAN_TRY(const Slice slice, group.run({.iterations = queued}));
    last = median(totals(slice));
    iterations += queued;
    queued = std::min(2 * queued, kMostQueued);
  } while (passed() < seconds);
  return Json{{"iterations", iterations}, {"seconds", passed()}, {"median_us", last}};
}

Result<Json> timed(BenchGroup& group, const SliceTask& task) {
  if (task.replay && !group.recorded()) return Json{{"reason", group.graph_reason()}};
  LONGSPAN_TRY(const Slice slice, group.run(task));
  return slice_json(slice);
}

Result<Json> checked(const Arm& arm) {
  LONGSPAN_TRY(const BenchCheck check, arm.group->check(arm.inputs));
  return check_json(check);
}

Error bad_line(const std::string& line) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}': one of 'warm SECONDS', 'round WARMUP ITERATIONS', 'graph WARMUP "
                      "ITERATIONS', 'check', 'end' is needed",
                      line),
          "bench"};
}

Result<Json> answer(const Arm& arm, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "check") return checked(arm);
  if (command == "warm") {
    double seconds = 0;
    if (words >> seconds) return warm(*arm.group, seconds);
  }
  if (command == "round" || command == "graph") {
    SliceTask task{.replay = command == "graph"};
    const bool read = static_cast<bool>(words >> task.warmup >> task.iterations);
    if (read && task.warmup >= 0 && task.iterations > 0) return timed(*arm.group, task);
  }
  return bad_line(line);
}

void say(const char* event, Json json) {
  replace_non_finite(json);
  json["event"] = event;
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

/// Answers each line of standard input with a line of JSON until "end".
Outcome serve(const Arguments& arguments, const Arm& arm) {
  say("ready", ready_json(arm));
  for (std::string line; std::getline(std::cin, line) && line != "end";) {
    Result<Json> reply = answer(arm, line);
    if (!reply.ok()) {
      say("error", {{"message", reply.error().text()}});
      return failed(reply.error(), arguments.problem, arguments.rank_count());
    }
    say(line.substr(0, line.find(' ')).c_str(), *std::move(reply));
  }
  return {};
}

std::string figures(const char* what, const std::vector<double>& device,
                    const std::vector<double>& host) {
  if (device.empty()) return "";
  return fmt::format("  {:<9} {:>12.1f} us  (host {:.1f} us)\n", what, median(device),
                     median(host));
}

/// Of replays, or why there are none.
std::string graph_text(const Json& graph) {
  if (graph.contains("reason")) {
    return fmt::format("  no graph: {}\n", graph["reason"].get<std::string>());
  }
  return fmt::format("  {:<9} {:>12.1f} us an iteration\n", "graph",
                     graph["wall_us"].get<double>());
}

Result<Outcome> run_at_once(const Arguments& arguments, const Arm& arm) {
  LONGSPAN_TRY(Json warmed, warm(*arm.group, arguments.warm_seconds));
  const SliceTask task{.warmup = arguments.warmup, .iterations = arguments.iterations};
  LONGSPAN_TRY(const Slice slice, arm.group->run(task));
  Outcome outcome;
  outcome.json = report_head("pass", arm.inputs.declared().text(), arm.task.topology.ranks(), "");
  outcome.json.update(ready_json(arm));
  outcome.json["warm"] = std::move(warmed);
  outcome.json["round"] = slice_json(slice);
  LONGSPAN_TRY(outcome.json["graph"],
               timed(*arm.group, {task.warmup, task.iterations, /*replay=*/true}));
  outcome.text = fmt::format("{} iterations after {} untimed, medians of the slowest rank\n{}{}",
                             task.iterations, task.warmup,
                             figures("forward", slice.forward, slice.host_forward),
                             figures("backward", slice.backward, slice.host_backward));
  outcome.text += fmt::format("  {:<9} {:>12.1f} us an iteration\n", "wall", slice.wall);
  if (arguments.graph) outcome.text += graph_text(outcome.json["graph"]);
  if (arguments.check == "none") return outcome;
  LONGSPAN_TRY(outcome.json["check"], checked(arm));
  outcome.text += fmt::format("float64 check: {}\n", outcome.json["check"].dump());
  if (outcome.json["check"]["pass"] == true && !replace_non_finite(outcome.json)) return outcome;
  outcome.json["status"] = "fail";
  outcome.exit_code = kCheckFailed;
  outcome.error = "longspan: the float64 check failed\n";
  return outcome;
}

}  // namespace

Outcome bench_command(const Arguments& arguments) {
  if (!arguments.calibrate.empty()) return calibrate_command(arguments);
  const auto refuse = [&](const Error& error) {
    if (arguments.serve) say("error", {{"message", error.text()}});
    return failed(error, arguments.problem, arguments.rank_count());
  };
  const auto arm = make_arm(arguments);
  if (!arm.ok()) return refuse(arm.error());
  if (arguments.serve) return serve(arguments, **arm);
  auto outcome = run_at_once(arguments, **arm);
  return outcome.ok() ? *std::move(outcome) : refuse(outcome.error());
}

}  // namespace longspan::tool
