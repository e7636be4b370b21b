#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "commands.h"
#include "group.h"
#include "options.h"
#include "output_file.h"
#include "plan_file.h"
#include "result_file.h"
#include "run_report.h"

namespace longspan::tool {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// All that must be in order before anything is computed.
struct Prepared {
  Topology topology;
  Options options;
  Device device;                // of rank 0
  std::vector<Device> devices;  // of all ranks where they are GPUs; else empty
  std::optional<PlanFile> plan;
  std::optional<OutputFile> output, saved_plan;
  Source source;
  Explanation explanation;
  Inputs inputs;  // empty when declined
  double inputs_seconds = 0;
};

Result<Topology> run_topology(const Arguments& arguments, const Session& session,
                              const std::optional<PlanFile>& plan) {
  const bool as_planned = plan && !arguments.ranks && !arguments.nodes;
  if (as_planned && !session.mpi) return planned_topology(plan->record);
  if (!session.mpi) return make_topology(arguments);
  const int size = session.mpi->size();
  if (arguments.ranks && *arguments.ranks != size) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--ranks {}: MPI started {} processes; drop --ranks or run 'mpirun -n {}'",
                    *arguments.ranks, size, *arguments.ranks),
        "usage"};
  }
  if (arguments.nodes && *arguments.nodes > size) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--nodes {}: MPI started only {} processes; use at most one node per "
                             "process",
                             *arguments.nodes, size),
                 "usage"};
  }
  return session.mpi->topology();
}

/// Ranks that are processes of one host share its cores.
int thread_count(const Arguments& arguments, const Session& session) {
  if (!session.mpi || arguments.threads != 0) return arguments.threads;
  const std::vector<int>& nodes = session.mpi->topology().node_of_rank;
  const int mine = nodes[static_cast<size_t>(session.mpi->rank())];
  const auto sharing = static_cast<int>(std::count(nodes.begin(), nodes.end(), mine));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / sharing);
}

/// Processes of one host take its GPUs in turn.
size_t place_on_node(const Session& session) {
  if (!session.mpi) return 0;
  const std::vector<int>& nodes = session.mpi->topology().node_of_rank;
  const auto mine = nodes.begin() + session.mpi->rank();
  return static_cast<size_t>(std::count(nodes.begin(), mine, *mine));
}

Result<Explanation> explanation_of(const Prepared& prepared) {
  if (!prepared.plan) {
    return explain(prepared.source.problem, prepared.topology, prepared.device, prepared.options);
  }
  LONGSPAN_TRY(Choice choice, settle(prepared.plan->record, prepared.topology, prepared.device));
  return std::move(choice.explanation);
}

Result<Prepared> prepare(const Arguments& arguments, const Session& session) {
  Prepared prepared;
  if (!arguments.plan.empty()) {
    LONGSPAN_TRY(prepared.plan, read_plan(arguments.plan));
  }
  LONGSPAN_TRY(prepared.topology, run_topology(arguments, session, prepared.plan));
  if (arguments.fail_rank >= prepared.topology.ranks()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--fail-rank {}: there are {} ranks, from 0", arguments.fail_rank,
                             prepared.topology.ranks()),
                 "usage"};
  }
  LONGSPAN_TRY(prepared.options, make_options(arguments));
  if (prepared.plan && prepared.options.promises.empty()) {
    prepared.options.promises = prepared.plan->record.promises;
  }
  LONGSPAN_TRY(prepared.source,
               prepared.plan
                   ? resolve_source(prepared.plan->record, arguments.input, arguments.seed)
                   : resolve_source(arguments.problem, arguments.input, arguments.seed));
  prepared.source.uniform_lengths = !prepared.options.promises.empty();
  const int threads = thread_count(arguments, session);
  LONGSPAN_TRY(prepared.devices, make_devices(arguments, prepared.topology.ranks(), threads));
  prepared.device = prepared.devices[place_on_node(session)];
  if (!prepared.device.is_cuda()) prepared.devices.clear();
  LONGSPAN_TRY(prepared.explanation, explanation_of(prepared));
  if (!arguments.output.empty() && session.reports()) {
    LONGSPAN_TRY(prepared.output, OutputFile::open(arguments.output));
  }
  if (!arguments.save_plan.empty() && session.reports()) {
    LONGSPAN_TRY(prepared.saved_plan, OutputFile::open(arguments.save_plan));
  }
  if (!prepared.explanation.ok()) return prepared;
  const auto begin = Clock::now();
  LONGSPAN_TRY(prepared.inputs, make_inputs(prepared.source, prepared.explanation.forward_only));
  prepared.inputs_seconds = seconds_since(begin);
  return prepared;
}

std::vector<NamedDecline> all_declines(const Explanation& explanation) {
  std::vector<NamedDecline> declines = explanation.forward.declines;
  declines.insert(declines.end(), explanation.backward.declines.begin(),
                  explanation.backward.declines.end());
  return declines;
}

/// The outcome of a preparation that did not lead to a run.
std::optional<Outcome> refusal(const Arguments& arguments, const Session& session,
                               const Result<Prepared>& prepared) {
  const int ranks = session.mpi ? session.mpi->size() : arguments.rank_count();
  if (!prepared.ok()) return failed(prepared.error(), arguments.problem, ranks);
  const Explanation& explanation = prepared->explanation;
  if (explanation.ok()) return std::nullopt;
  return failed({ErrorCode::kUnsupported, explanation.text(), "explain"},
                prepared->source.problem.text(), ranks, all_declines(explanation));
}

Result<GroupResults> compute(const Arguments& arguments, const Session& session,
                             const Prepared& prepared) {
  const GroupTask task{.inputs = &prepared.inputs,
                       .options = prepared.options,
                       .topology = prepared.topology,
                       .communicator = arguments.communicator,
                       .device = prepared.device,
                       .devices = prepared.devices,
                       .plan = prepared.plan ? prepared.plan->bytes : "",
                       .repeat = arguments.repeat,
                       .fail_rank = arguments.fail_rank};
  return session.mpi ? run_mpi(task, session.mpi) : run_threads(task);
}

bool partials_16bit(const Prepared& prepared, const Call& call) {
  const auto rounds = [&](const Selection& selection, Direction direction) {
    const Verdict verdict =
        selection.provider->consider(call.schedule(direction).tiles, prepared.device);
    const Offer* offer = std::get_if<Offer>(&verdict);
    return offer != nullptr && offer->partials_16bit;
  };
  if (rounds(call.explanation().forward, Direction::kForward)) return true;
  return !call.explanation().forward_only &&
         rounds(call.explanation().backward, Direction::kBackward);
}

std::vector<Device> first_of(const std::vector<Device>& devices) {
  return devices.empty() ? devices : std::vector<Device>{devices.front()};
}

/// The rule for 16-bit types: N ranks are about as exact as one.
Status add_one_rank_checks(const Prepared& prepared, const GroupResults& results,
                           const Reference& reference, RunReport& report) {
  const DType dtype = prepared.inputs.problem.dtype;
  if (prepared.topology.ranks() == 1 || (dtype != DType::kF16 && dtype != DType::kBF16)) return {};
  Options options = prepared.options;
  options.forward.strategy = "auto";
  if (!prepared.explanation.forward_only) options.backward.strategy = "auto";
  options.partition = "auto";
  options.log = {};  // --verbose tells of the run itself
  const auto alone = run_threads({.inputs = &prepared.inputs,
                                  .options = options,
                                  .topology = Topology::blocks(1, 1),
                                  .device = prepared.device,
                                  .devices = first_of(prepared.devices)});
  if (!alone.ok()) return alone.error();
  const double factor = partials_16bit(prepared, *results.call) ? 1.35 : 1.05;
  const std::vector<Check> checks = check_against_one_rank(
      report.measures, measure_all(prepared.inputs, *alone, reference), factor);
  report.checks.insert(report.checks.end(), checks.begin(), checks.end());
  return {};
}

Status verify(const Arguments& arguments, const Prepared& prepared, const GroupResults& results,
              RunReport& report) {
  const auto begin = Clock::now();
  if (arguments.check == "fp64") {
    Progress progress(true);
    LONGSPAN_TRY(const Reference reference,
                 compute_reference(prepared.inputs, prepared.device, progress,
                                   prepared.explanation.forward_only));
    report.measures = measure_all(prepared.inputs, results, reference);
    const Bars limits = bars(prepared.inputs.problem.dtype, largest_finite(reference.lse.view),
                             prepared.device.is_cuda());
    if (!limits.reason.empty()) report.notes.push_back(limits.reason);
    report.checks = check_measures(report.measures, limits);
    LONGSPAN_CHECK_OK(add_one_rank_checks(prepared, results, reference, report));
  } else {
    report.notes.emplace_back("--check none: not compared with float64");
  }
  report.checks.push_back(check_padding(prepared.inputs.problem, results));
  if (prepared.inputs.problem.max_logit) report.checks.push_back(check_max_logit(results));
  if (arguments.repeat > 1) {
    report.checks.push_back(
        {.name = "repeats",
         .value = static_cast<double>(results.unequal_repeats),
         .bar = 0,
         .detail = fmt::format("of {} runs differ in a bit", arguments.repeat)});
  }
  report.seconds.check = seconds_since(begin);
  return {};
}

Result<Outcome> verify_and_report(const Arguments& arguments, Prepared& prepared,
                                  const GroupResults& results, Clock::time_point begin) {
  RunReport report{.arguments = &arguments,
                   .inputs = &prepared.inputs,
                   .results = &results,
                   .topology = prepared.topology,
                   .threads = prepared.device.threads,
                   .measures = {},
                   .checks = {},
                   .notes = {},
                   .seconds = {.inputs = prepared.inputs_seconds, .check = 0, .total = 0}};
  LONGSPAN_CHECK_OK(verify(arguments, prepared, results, report));
  if (prepared.output) {
    LONGSPAN_CHECK_OK(write_results(*prepared.output, prepared.inputs, results));
    report.notes.push_back(fmt::format("inputs and results are in '{}'", arguments.output));
    if (prepared.inputs.problem.dropout != 0 && !writes_dropout_keep(prepared.inputs.problem)) {
      report.notes.emplace_back("dropout_keep would take more than 64 MiB and is not written");
    }
  }
  if (prepared.saved_plan) {
    LONGSPAN_CHECK_OK(save_plan(*prepared.saved_plan, *results.call));
    report.notes.push_back(fmt::format("the plan is in '{}'", arguments.save_plan));
  }
  report.seconds.total = seconds_since(begin);
  return report_run(report);
}

Outcome run_failed(const Error& error, const Prepared& prepared, Session& session) {
  Outcome outcome = failed(error, prepared.inputs.declared().text(), prepared.topology.ranks());
  if (!session.mpi) return outcome;
  session.lost = outcome.exit_code == kInternal;
  outcome.error = fmt::format("longspan: rank {}: {}\n", session.mpi->rank(), error.text());
  // Every rank has the same error then, and rank 0 says it.
  if (outcome.exit_code == kBadInput && !session.reports()) outcome.error.clear();
  return outcome;
}

}  // namespace

Outcome run_command(const Arguments& arguments, Session& session) {
  const auto begin = Clock::now();
  Result<Prepared> prepared = prepare(arguments, session);
  auto refused = agree_to_start(arguments, session, refusal(arguments, session, prepared));
  if (refused) return *std::move(refused);
  const auto results = compute(arguments, session, *prepared);
  if (!results.ok()) return run_failed(results.error(), *prepared, session);
  if (!session.reports()) return {};
  auto outcome = verify_and_report(arguments, *prepared, *results, begin);
  if (!outcome.ok()) return run_failed(outcome.error(), *prepared, session);
  return *std::move(outcome);
}

}  // namespace longspan::tool
