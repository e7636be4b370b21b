#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "flags.h"
#include "longspan/version.h"
#include "texts.h"

namespace longspan::tool {
namespace {

constexpr int kMaxRanks = 1 << 20;

Error usage(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "usage"};
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

/// simulate costs every strategy; all it needs to know is whether there is a backward.
Status check_backward(const Raw& raw) {
  const std::string& name = raw.arguments.backward.strategy;
  if (name == kNoStrategy) {
    if (raw.arguments.command != "schedule" || raw.direction == "forward") return {};
    return usage("--backward none --direction backward: forward alone has no such steps; drop one");
  }
  if (raw.arguments.command != "simulate" || name == "auto") {
    return check_strategy("--backward", name);
  }
  return usage(
      fmt::format("--backward {}: simulate costs every strategy; auto or none is needed", name));
}

Status check_range(const char* flag, int64_t value, int64_t least, int64_t most) {
  if (least <= value && value <= most) return {};
  return usage(
      fmt::format("{} {}: a whole number from {} to {} is needed", flag, value, least, most));
}

Status check_seconds(const char* flag, double value, double least) {
  constexpr double kLongest = 1e6;
  if (value >= least && value <= kLongest) return {};
  return usage(
      fmt::format("{} {}: seconds from {} to {:.0f} are needed", flag, value, least, kLongest));
}

Status check_word(const char* flag, const std::string& value,
                  std::initializer_list<std::string_view> words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return {};
  return usage(fmt::format("{} {}: one of {} is needed", flag, value, fmt::join(words, ", ")));
}

Result<std::optional<uint64_t>> parse_seed(const std::string& text) {
  if (text.empty()) return std::optional<uint64_t>();
  uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, seed);
  if (code == std::errc() && stop == end) return std::optional(seed);
  return usage(fmt::format("--seed {}: a whole number from 0 to 2^64 - 1 is needed", text));
}

Status check_numbers(const Raw& raw) {
  const bool computes = raw.arguments.command != "schedule" && raw.arguments.command != "simulate";
  LONGSPAN_CHECK_OK(check_range("--ranks", raw.ranks, 1, computes ? kMostRunRanks : kMaxRanks));
  LONGSPAN_CHECK_OK(check_range("--nodes", raw.nodes, 1, kMaxRanks));
  if (raw.nodes > raw.ranks && raw.arguments.communicator != "mpi") {
    return usage(fmt::format("--nodes {}: there are only {} ranks; use at most one node per rank",
                             raw.nodes, raw.ranks));
  }
  LONGSPAN_CHECK_OK(check_range("--repeat", raw.repeat, 1, 1'000'000));
  LONGSPAN_CHECK_OK(check_range("--head-slices", raw.head_slices, 0, kMostHeadSlices));
  LONGSPAN_CHECK_OK(check_range("--score-bytes", raw.arguments.score_bytes, 0, int64_t{1} << 50));
  LONGSPAN_CHECK_OK(check_range("--threads", raw.threads, 0, 4096));
  LONGSPAN_CHECK_OK(check_range("--rank", raw.rank, 0, raw.ranks - 1));
  LONGSPAN_CHECK_OK(check_range("--fail-rank", raw.fail_rank, -1, kMostRunRanks));
  LONGSPAN_CHECK_OK(check_range("--warmup", raw.warmup, 0, 1'000'000));
  LONGSPAN_CHECK_OK(check_range("--iterations", raw.iterations, 1, 1'000'000));
  LONGSPAN_CHECK_OK(check_seconds("--warm", raw.arguments.warm_seconds, 0));
  LONGSPAN_CHECK_OK(check_seconds("--budget", raw.arguments.budget, 0));
  return check_seconds("--deadline", raw.arguments.deadline, 0.001);
}

/// Of two outputs in one file the later would replace the earlier without a word.
Status check_outputs(const Arguments& arguments) {
  const std::pair<const char*, const std::string&> outputs[] = {
      {"--json", arguments.json},
      {"--output", arguments.output},
      {"--save-plan", arguments.save_plan},
      {"--plot", arguments.plot},
      {"--calibrate", arguments.calibrate}};
  std::map<std::filesystem::path, const char*> flags;
  for (const auto& [flag, path] : outputs) {
    if (path.empty() || path == "-") continue;
    const auto [found, fresh] = flags.emplace(std::filesystem::path(path).lexically_normal(), flag);
    if (fresh) continue;
    return usage(fmt::format("{} {}: {} names the same file; name two", flag, path, found->second));
  }
  return {};
}

Result<Arguments> checked(Raw raw) {
  LONGSPAN_CHECK_OK(check_numbers(raw));
  Arguments& arguments = raw.arguments;
  LONGSPAN_CHECK_OK(check_outputs(arguments));
  LONGSPAN_TRY(arguments.seed, parse_seed(raw.seed));
  LONGSPAN_CHECK_OK(check_word("--communicator", arguments.communicator,
                               {"threads", "mpi", "peer", "nccl", "composite"}));
  if (!arguments.plan.empty() && !arguments.problem.empty()) {
    return usage(fmt::format("--problem {}: the plan '{}' has its own problem; drop one of them",
                             arguments.problem, arguments.plan));
  }
  LONGSPAN_CHECK_OK(check_word("--check", arguments.check, {"fp64", "none"}));
  LONGSPAN_CHECK_OK(check_word("--format", arguments.format, {"markdown", "json"}));
  LONGSPAN_CHECK_OK(check_word("--direction", raw.direction, {"forward", "backward"}));
  LONGSPAN_CHECK_OK(check_strategy("--forward", arguments.forward.strategy));
  LONGSPAN_CHECK_OK(check_backward(raw));
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
  for (const std::string& arm : arguments.arms) {
    const auto routing = parse_routing("require:" + arm);
    if (!routing.ok()) return usage(fmt::format("--arms {}: {}", arm, routing.error().message));
  }
  arguments.repeat = static_cast<int>(raw.repeat);
  arguments.head_slices = static_cast<int>(raw.head_slices);
  arguments.threads = static_cast<int>(raw.threads);
  arguments.rank = static_cast<int>(raw.rank);
  arguments.fail_rank = static_cast<int>(raw.fail_rank);
  arguments.warmup = static_cast<int>(raw.warmup);
  arguments.iterations = static_cast<int>(raw.iterations);
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
}

/// An empty text is an unset variable of a script, never what was meant.
Status check_not_empty(const CLI::App& command) {
  for (const char* flag : {"--problem", "--input", "--output", "--json", "--plan", "--save-plan",
                           "--plot", "--rates", "--seed", "--ranks", "--cudnn", "--prepared",
                           "--routing-table", "--calibrate", "--cases"}) {
    const CLI::Option* option = command.get_option_no_throw(flag);
    if (option == nullptr || option->count() == 0 || !option->as<std::string>().empty()) continue;
    return usage(fmt::format("{} is empty; give a value or drop the flag", flag));
  }
  return {};
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
  app.footer(overview_text);
  add_commands(app, raw);
  const std::vector<std::string> names = command_names(app);
  if (!words.empty() && !words.front().starts_with("-") &&
      !std::ranges::count(names, words.front())) {
    return usage(fmt::format("unknown command '{}'; one of {} is needed, see 'longspan --help'",
                             words.front(), fmt::join(names, ", ")));
  }
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
  LONGSPAN_CHECK_OK(check_not_empty(command));
  keep_given(raw, command);
  LONGSPAN_TRY(Arguments arguments, checked(std::move(raw)));
  return Parsed(std::move(arguments));
}

}  // namespace longspan::tool
