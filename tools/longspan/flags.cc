#include "flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "texts.h"

namespace longspan::tool {
namespace {

void add_problem(CLI::App& command, Raw& raw) {
  command.add_option("--problem", raw.arguments.problem,
                     "what to compute, as \"key=value ...\" (table of keys below)");
  command.add_option("--input", raw.arguments.input,
                     "safetensors file with q, k, v and maybe dout, cu_seqlens_*, sink, bias, "
                     "alibi_slopes");
  command.add_option(
      "--json", raw.arguments.json,
      "write the report as JSON to FILE; -: standard output, which then holds nothing "
      "else");
}

void add_ranks(CLI::App& command, Raw& raw) {
  command.add_option("--ranks", raw.ranks, "number of ranks (default 1)");
  command.add_option(
      "--nodes", raw.nodes,
      "number of hosts that the ranks are taken to lie on, in equal blocks (default 1; "
      "with mpi: by host name)");
  command.add_option(
      "--partition", raw.arguments.partition,
      "which rank owns which rows: contiguous, zigzag, striped, balanced (default auto)");
}

void add_strategies(CLI::App& command, Raw& raw) {
  const char* names = "ring, all_gather, all_to_all, hybrid";
  command.add_option("--forward", raw.arguments.forward.strategy,
                     fmt::format("strategy of forward: {} (default auto)", names));
  command.add_option("--backward", raw.arguments.backward.strategy,
                     fmt::format("strategy of backward: {}, head_parallel, or none: forward alone "
                                 "(default auto)",
                                 names));
  command.add_option("--head-slices", raw.head_slices,
                     "heads are exchanged in so many slices, one while another is computed "
                     "(default 0: automatic)");
  command.add_option("--score-bytes", raw.arguments.score_bytes,
                     "most bytes of scores that backward keeps in a rank's workspace at a time "
                     "(default 0: as many as its provider likes)");
  command.add_flag("--no-pull", raw.arguments.no_pull,
                   "forward's all_gather exchanges keys before it computes, also where its launch "
                   "could pull them");
  command.add_option("--rates", raw.arguments.rates,
                     "JSON file with what a machine does per second (default: H200, see simulate)");
}

void add_choices(CLI::App& command, Raw& raw) {
  add_strategies(command, raw);
  command
      .add_option(
          "--provider", raw.providers,
          "[forward=|backward=]MODE:NAME, repeatable; MODE is prefer, require or off, NAME as in "
          "'longspan list' (default auto)")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--routing-table", raw.arguments.routing_table,
                     "JSON file with measured times of providers, which the automatic choice goes "
                     "by (default: the one that comes with longspan; see bench --calibrate)");
  command.add_option(
      "--promise", raw.arguments.promise,
      "actual lengths are those of the problem, which guards check: uniform_lengths; "
      "compact_lengths: without gaps; pitched_all_gather: sequences alike (default none)");
  command.add_option("--guards", raw.arguments.guards,
                     "what a broken promise does: report, or trap on GPUs (default report)");
  command.add_option("--output-fill", raw.arguments.output_fill,
                     "always: also fill outputs before they are written, which changes no bit of "
                     "them (default elide)");
  command.add_option("--deadline", raw.arguments.deadline,
                     "longest wait for another rank, in seconds (default 60)");
  command.add_option("--threads", raw.threads,
                     "threads that compute; changes no bit of any result (default 0: all cores)");
  command.add_flag("--verbose", raw.arguments.verbose,
                   "tell on standard error what is chosen, built, opened and lost");
}

constexpr const char* kDeviceHelp =
    "cpu; cuda:N: the GPU that computes, shared by all ranks; cuda: all GPUs, in turn (default "
    "cpu)";

constexpr const char* kCudnnHelp =
    "file or directory of cuDNN (default: where the loader finds libcudnn.so.9)";

constexpr const char* kPreparedHelp =
    "folder that longspan prepare wrote (default: no prepared kernels)";

constexpr const char* kPlannedDeviceHelp =
    "cpu; cuda: as on GPUs, which need not be there (default cpu)";

void add_save_plan(CLI::App& command, Raw& raw) {
  command.add_option("--save-plan", raw.arguments.save_plan,
                     "write what was chosen to FILE, for --plan and for the other front ends");
}

CLI::App* add_run(CLI::App& app, Raw& raw) {
  CLI::App* run =
      app.add_subcommand("run", "Compute forward and backward over ranks and verify the result");
  add_problem(*run, raw);
  run->add_option("--output", raw.arguments.output,
                  "write inputs and results, whole, as safetensors to FILE");
  run->add_option("--plan", raw.arguments.plan,
                  "run the plan in FILE: its problem, ranks and choices; nothing is chosen anew");
  add_save_plan(*run, raw);
  add_ranks(*run, raw);
  add_choices(*run, raw);
  run->add_option("--seed", raw.seed, "seed of random inputs (default 0, or that of --input)");
  run->add_option("--repeat", raw.repeat,
                  "run so many times; the results must be equal bit for bit (default 1)");
  run->add_option(
      "--communicator", raw.arguments.communicator,
      "threads: ranks in this process; mpi: this process is one rank, under mpirun; peer, nccl: "
      "ranks in this process on GPUs, for nccl one each; composite: threads or peer inside each "
      "node, threads or nccl between nodes (default threads)");
  run->add_option("--device", raw.arguments.device, kDeviceHelp);
  run->add_option("--cudnn", raw.arguments.cudnn, kCudnnHelp);
  run->add_option("--prepared", raw.arguments.prepared, kPreparedHelp);
  run->add_option("--check", raw.arguments.check,
                  "fp64: every element against float64 attention; none (default fp64)");
  run->add_option(
      "--fail-rank", raw.fail_rank,
      "for tests of lost peers: this rank stops without a word once the run is prepared");
  run->footer(run_examples);
  return run;
}

void add_bench(CLI::App& app, Raw& raw) {
  CLI::App* bench = app.add_subcommand("bench", "Time forward and backward of one arm");
  add_problem(*bench, raw);
  add_ranks(*bench, raw);
  add_choices(*bench, raw);
  bench->add_option("--seed", raw.seed, "seed of random inputs (default 0, or that of --input)");
  bench->add_option("--device", raw.arguments.device, kDeviceHelp);
  bench->add_option("--cudnn", raw.arguments.cudnn, kCudnnHelp);
  bench->add_option("--prepared", raw.arguments.prepared, kPreparedHelp);
  bench->add_option("--communicator", raw.arguments.communicator,
                    "threads, peer, nccl, composite, as in run (default threads)");
  bench->add_option("--check", raw.arguments.check,
                    "fp64: every element against float64 attention; none (default fp64)");
  bench->add_option("--warm", raw.arguments.warm_seconds,
                    "seconds of the same work before anything is timed (default 3)");
  bench->add_option("--warmup", raw.warmup, "iterations right before the timed ones (default 5)");
  bench->add_option("--iterations", raw.iterations, "timed iterations (default 50)");
  bench->add_flag("--graph", raw.arguments.graph, "also record CUDA graphs and time replays");
  bench->add_flag("--serve", raw.arguments.serve,
                  "take commands from standard input, a line of JSON for each");
  bench->add_option("--calibrate", raw.arguments.calibrate,
                    "time the providers that offer each case of a list and write their times as a "
                    "routing table to FILE, in place of timing one problem");
  bench->add_option("--cases", raw.arguments.cases,
                    "with --calibrate: the list, a problem text a line (default: one for GPUs)");
  bench
      ->add_option("--arms", raw.arguments.arms,
                   "with --calibrate: the providers, with commas (default: all but references)")
      ->delimiter(',');
  bench->add_option("--budget", raw.arguments.budget,
                    "with --calibrate: seconds after which no case starts (default 600)");
  bench->footer(bench_examples);
}

/// What --help calls the value of each flag.
constexpr std::pair<const char*, const char*> kValueNames[] = {
    {"--problem", "TEXT"},     {"--input", "FILE"},
    {"--json", "FILE"},        {"--ranks", "N"},
    {"--nodes", "M"},          {"--partition", "NAME"},
    {"--head-slices", "N"},    {"--score-bytes", "BYTES"},
    {"--forward", "STRATEGY"}, {"--backward", "STRATEGY"},
    {"--rates", "FILE"},       {"--provider", "CHOICE"},
    {"--deadline", "SECONDS"}, {"--threads", "N"},
    {"--output", "FILE"},      {"--seed", "N"},
    {"--repeat", "N"},         {"--communicator", "NAME"},
    {"--check", "NAME"},       {"--fail-rank", "RANK"},
    {"--direction", "NAME"},   {"--rank", "RANK"},
    {"--plot", "FILE"},        {"--format", "NAME"},
    {"--device", "NAME"},      {"--cudnn", "PATH"},
    {"--warm", "SECONDS"},     {"--warmup", "N"},
    {"--iterations", "N"},     {"--promise", "NAME"},
    {"--guards", "NAME"},      {"--output-fill", "NAME"},
    {"--plan", "FILE"},        {"--save-plan", "FILE"},
    {"--prepared", "DIR"},     {"--routing-table", "FILE"},
    {"--calibrate", "FILE"},   {"--cases", "FILE"},
    {"--arms", "NAMES"},       {"--budget", "SECONDS"},
};

std::vector<CLI::App*> commands_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

void name_values(CLI::App& app) {
  for (CLI::App* command : commands_of(app)) {
    for (const auto& [flag, value] : kValueNames) {
      CLI::Option* option = command->get_option_no_throw(flag);
      if (option != nullptr) option->type_name(value);
    }
  }
}

}  // namespace

void add_commands(CLI::App& app, Raw& raw) {
  add_run(app, raw);
  add_bench(app, raw);
  CLI::App* explain = app.add_subcommand("explain", "Say what would run and why");
  add_problem(*explain, raw);
  add_ranks(*explain, raw);
  add_choices(*explain, raw);
  add_save_plan(*explain, raw);
  explain->footer(explain_examples);
  CLI::App* schedule =
      app.add_subcommand("schedule", "Print, prove and draw the steps of the ranks");
  add_problem(*schedule, raw);
  add_ranks(*schedule, raw);
  add_strategies(*schedule, raw);
  schedule->add_option("--device", raw.arguments.device, kPlannedDeviceHelp);
  schedule->add_option("--direction", raw.direction, "forward or backward (default forward)");
  schedule->add_option("--rank", raw.rank, "whose steps to print (default 0)");
  schedule->add_flag("--all", raw.arguments.all_ranks, "print the steps of all ranks");
  schedule->add_option("--plot", raw.arguments.plot,
                       "draw each rank's lanes over time as SVG to FILE");
  schedule->footer(schedule_examples);
  CLI::App* simulate =
      app.add_subcommand("simulate", "Cost all strategies, for up to thousands of ranks");
  add_problem(*simulate, raw);
  add_ranks(*simulate, raw);
  simulate->add_option("--backward", raw.arguments.backward.strategy,
                       "none: forward alone (default auto: both directions)");
  simulate->add_option("--rates", raw.arguments.rates,
                       "JSON file with what a machine does per second (default: H200)");
  simulate->add_option("--device", raw.arguments.device, kPlannedDeviceHelp);
  simulate->footer(simulate_examples);
  CLI::App* list =
      app.add_subcommand("list", "List providers, strategies, communicators and problem keys");
  list->add_option("--json", raw.arguments.json,
                   "write the list as JSON to FILE, or - for standard output");
  CLI::App* support =
      app.add_subcommand("support", "Print which strategy and provider offers what");
  support->add_option("--format", raw.arguments.format, "markdown or json (default markdown)");
  support->add_option("--json", raw.arguments.json,
                      "write the matrix as JSON to FILE, or - for standard output");
  app.add_subcommand("prepare",
                     "Compile kernels of other packages into a store (a Python program)");
  name_values(app);
}

std::vector<std::string> command_names(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

}  // namespace longspan::tool
