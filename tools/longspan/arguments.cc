#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

#include "longspan/version.h"
#include "texts.h"

namespace longspan::tool {
namespace {

constexpr int kMaxRunRanks = 1024;
constexpr int kMaxRanks = 1 << 20;

Error usage(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "usage"};
}

/// What the parser fills in before it is checked.
struct Raw {
  Arguments arguments;
  int64_t ranks = 1;
  int64_t nodes = 1;
  int64_t repeat = 1;
  int64_t threads = 0;
  int64_t rank = 0;
  int64_t fail_rank = -1;
  uint64_t seed = 0;
  std::string direction = "forward";
  std::vector<std::string> providers;
};

void add_problem(CLI::App& command, Raw& raw) {
  command.add_option("--problem", raw.arguments.problem,
                     "what to compute, as \"key=value ...\" (table of keys below)");
  command.add_option("--input", raw.arguments.input,
                     "safetensors file with q, k, v and maybe dout and cu_seqlens_*");
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
                     fmt::format("strategy of backward: {}, head_parallel (default auto)", names));
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
  command.add_option("--deadline", raw.arguments.deadline,
                     "longest wait for another rank, in seconds (default 60)");
  command.add_option("--threads", raw.threads,
                     "threads that compute; changes no bit of any result (default 0: all cores)");
}

CLI::App* add_run(CLI::App& app, Raw& raw) {
  CLI::App* run =
      app.add_subcommand("run", "Compute forward and backward over ranks and verify the result");
  add_problem(*run, raw);
  run->add_option("--output", raw.arguments.output,
                  "write inputs and results, whole, as safetensors to FILE");
  add_ranks(*run, raw);
  add_choices(*run, raw);
  run->add_option("--seed", raw.seed, "seed of random inputs (default 0, or that of --input)");
  run->add_option("--repeat", raw.repeat,
                  "run so many times; the results must be equal bit for bit (default 1)");
  run->add_option(
      "--communicator", raw.arguments.communicator,
      "threads: ranks in this process; mpi: this process is one rank, under mpirun (default "
      "threads)");
  run->add_option("--check", raw.arguments.check,
                  "fp64: every element against float64 attention; none (default fp64)");
  run->add_option(
      "--fail-rank", raw.fail_rank,
      "for tests of lost peers: this rank stops without a word once the run is prepared");
  run->footer(run_examples);
  return run;
}

void add_commands(CLI::App& app, Raw& raw) {
  add_run(app, raw);
  CLI::App* explain = app.add_subcommand("explain", "Say what would run and why");
  add_problem(*explain, raw);
  add_ranks(*explain, raw);
  add_choices(*explain, raw);
  explain->footer(explain_examples);
  CLI::App* schedule =
      app.add_subcommand("schedule", "Print, prove and draw the steps of the ranks");
  add_problem(*schedule, raw);
  add_ranks(*schedule, raw);
  add_strategies(*schedule, raw);
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
  simulate->add_option("--rates", raw.arguments.rates,
                       "JSON file with what a machine does per second (default: H200)");
  simulate->footer(simulate_examples);
  CLI::App* list =
      app.add_subcommand("list", "List providers, strategies, communicators and problem keys");
  list->add_option("--json", raw.arguments.json,
                   "write the list as JSON to FILE, or - for standard output");
}

Status set_provider(Raw& raw, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string side = equals == std::string::npos ? "" : text.substr(0, equals);
  if (equals != std::string::npos && side != "forward" && side != "backward") {
    return usage(
        fmt::format("--provider {}: '{}' is no direction; forward= or backward= may stand in "
                    "front of MODE:NAME",
                    text, side));
  }
  auto routing = parse_routing(side.empty() ? text : text.substr(equals + 1));
  if (!routing.ok()) {
    return Error{routing.error().code,
                 fmt::format("--provider {}: {}", text, routing.error().message), "usage"};
  }
  if (side != "backward") raw.arguments.forward.routing = *routing;
  if (side != "forward") raw.arguments.backward.routing = *routing;
  return {};
}

Status check_strategy(const char* flag, const std::string& value) {
  if (value == "auto") return {};
  const auto strategy = find_strategy(value);
  if (strategy.ok()) return {};
  return usage(fmt::format("{} {}: {}", flag, value, strategy.error().message));
}

Status check_range(const char* flag, int64_t value, int64_t least, int64_t most) {
  if (least <= value && value <= most) return {};
  return usage(
      fmt::format("{} {}: a whole number from {} to {} is needed", flag, value, least, most));
}

Status check_word(const char* flag, const std::string& value,
                  std::initializer_list<std::string_view> words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return {};
  return usage(fmt::format("{} {}: one of {} is needed", flag, value, fmt::join(words, ", ")));
}

Status check_numbers(const Raw& raw) {
  const bool computes = raw.arguments.command == "run" || raw.arguments.command == "explain";
  LONGSPAN_CHECK_OK(check_range("--ranks", raw.ranks, 1, computes ? kMaxRunRanks : kMaxRanks));
  LONGSPAN_CHECK_OK(check_range("--nodes", raw.nodes, 1, kMaxRanks));
  if (raw.nodes > raw.ranks && raw.arguments.communicator != "mpi") {
    return usage(fmt::format("--nodes {}: there are only {} ranks; use at most one node per rank",
                             raw.nodes, raw.ranks));
  }
  LONGSPAN_CHECK_OK(check_range("--repeat", raw.repeat, 1, 1'000'000));
  LONGSPAN_CHECK_OK(check_range("--threads", raw.threads, 0, 4096));
  LONGSPAN_CHECK_OK(check_range("--rank", raw.rank, 0, raw.ranks - 1));
  LONGSPAN_CHECK_OK(check_range("--fail-rank", raw.fail_rank, -1, kMaxRunRanks));
  constexpr double kLongest = 1e6;
  const double deadline = raw.arguments.deadline;
  if (deadline >= 0.001 && deadline <= kLongest) return {};
  return usage(
      fmt::format("--deadline {}: seconds from 0.001 to {:.0f} are needed", deadline, kLongest));
}

Result<Arguments> checked(Raw raw) {
  LONGSPAN_CHECK_OK(check_numbers(raw));
  Arguments& arguments = raw.arguments;
  LONGSPAN_CHECK_OK(check_word("--communicator", arguments.communicator, {"threads", "mpi"}));
  LONGSPAN_CHECK_OK(check_word("--check", arguments.check, {"fp64", "none"}));
  LONGSPAN_CHECK_OK(check_word("--direction", raw.direction, {"forward", "backward"}));
  LONGSPAN_CHECK_OK(check_strategy("--forward", arguments.forward.strategy));
  LONGSPAN_CHECK_OK(check_strategy("--backward", arguments.backward.strategy));
  if (arguments.partition != "auto") {
    const auto partition = parse_partition(arguments.partition);
    if (!partition.ok()) {
      return usage(
          fmt::format("--partition {}: {}", arguments.partition, partition.error().message));
    }
  }
  // Those of one direction over those of both.
  std::stable_partition(raw.providers.begin(), raw.providers.end(), [](const std::string& text) {
    return text.find('=') == std::string::npos;
  });
  std::set<std::string> sides;
  for (const std::string& text : raw.providers) {
    const size_t equals = text.find('=');
    const std::string side =
        equals == std::string::npos ? "both directions" : text.substr(0, equals);
    if (!sides.insert(side).second) {
      return usage(
          fmt::format("--provider {}: {} was given before; give one choice each", text, side));
    }
    LONGSPAN_CHECK_OK(set_provider(raw, text));
  }
  arguments.repeat = static_cast<int>(raw.repeat);
  arguments.threads = static_cast<int>(raw.threads);
  arguments.rank = static_cast<int>(raw.rank);
  arguments.fail_rank = static_cast<int>(raw.fail_rank);
  arguments.direction = raw.direction == "forward" ? Direction::kForward : Direction::kBackward;
  return arguments;
}

/// Flags that were given, as optional values.
void keep_given(Raw& raw, const CLI::App& command) {
  const auto given = [&](const char* name) {
    const CLI::Option* option = command.get_option_no_throw(name);
    return option != nullptr && option->count() > 0;
  };
  if (given("--ranks"))
    raw.arguments.ranks = static_cast<int>(std::clamp<int64_t>(raw.ranks, 0, kMaxRanks));
  if (given("--nodes"))
    raw.arguments.nodes = static_cast<int>(std::clamp<int64_t>(raw.nodes, 0, kMaxRanks));
  if (given("--seed")) raw.arguments.seed = raw.seed;
}

}  // namespace

std::string raw_flag(const std::vector<std::string>& words, const std::string& name) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == name && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(name + "=")) return words[i].substr(name.size() + 1);
  }
  return {};
}

Result<Parsed> parse_arguments(const std::vector<std::string>& words) {
  Raw raw;
  CLI::App app("Exact attention, forward and backward, over sequences that span many ranks.",
               "longspan");
  app.set_version_flag("--version", "longspan " LONGSPAN_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(30);
  app.get_formatter()->label("TEXT", "");
  app.footer(overview_text);
  add_commands(app, raw);
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    return Parsed(Information{chosen.empty() ? app.help() : chosen.front()->help("longspan")});
  } catch (const CLI::CallForVersion& version) {
    return Parsed(Information{std::string(version.what()) + "\n"});
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    const std::string command = chosen.empty() ? "" : chosen.front()->get_name() + " ";
    return usage(fmt::format("{}; see 'longspan {}--help'", error.what(), command));
  }
  const CLI::App& command = *app.get_subcommands().front();
  raw.arguments.command = command.get_name();
  keep_given(raw, command);
  LONGSPAN_TRY(Arguments arguments, checked(std::move(raw)));
  return Parsed(std::move(arguments));
}

}  // namespace longspan::tool
