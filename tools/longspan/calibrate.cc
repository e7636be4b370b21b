#include "calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <utility>

#include "longspan/libraries.h"
#include "longspan/version.h"
#include "options.h"
#include "output_file.h"
#include "text_file.h"
#include "timed_case.h"

namespace longspan::tool {
namespace {

using Clock = std::chrono::steady_clock;

Error usage(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "usage"};
}

Result<std::vector<std::string>> wanted_cases(const Arguments& arguments) {
  if (arguments.cases.empty()) return standard_cases();
  LONGSPAN_TRY(const std::string text, read_text_file("--cases", arguments.cases));
  std::vector<std::string> lines = case_lines(text);
  if (lines.empty()) {
    return usage(fmt::format("--cases '{}' has no problem text; give one a line", arguments.cases));
  }
  return lines;
}

/// References are there to be right: their times at real sizes are minutes.
std::vector<std::string> wanted_providers(const Arguments& arguments) {
  if (!arguments.arms.empty()) return arguments.arms;
  std::vector<std::string> names;
  for (const Provider* provider : providers()) {
    if (!provider->name().ends_with("/reference")) names.emplace_back(provider->name());
  }
  return names;
}

/// "cuDNN 9.19.0" of "cuDNN 9.19.0 (/usr/lib/libcudnn.so.9)".
std::string without_path(const std::string& library) {
  return library.substr(0, library.find(" ("));
}

/// Once all that was timed has been opened.
std::map<std::string, std::string> fingerprint(const CaseTask& task) {
  std::vector<std::string> libraries;
  for (const std::string& library : opened_libraries()) libraries.push_back(without_path(library));
  const Device& device = task.device;
  return {{"longspan", LONGSPAN_VERSION},
          {"device",
           device.is_cuda() ? device.product : fmt::format("cpu, {} threads", device.threads)},
          {"providers", fmt::format("{}", fmt::join(task.providers, ", "))},
          {"libraries", fmt::format("{}", fmt::join(libraries, ", "))}};
}

std::string row_text(const RoutingRow& row) {
  std::vector<std::string> times;
  for (const MeasuredTime& t : row.times) {
    times.push_back(fmt::format("{} {:.1f} us", t.provider, t.microseconds));
  }
  return fmt::format("  {:<9} {}\n", name(row.measured.direction), fmt::join(times, ", "));
}

/// How good the table is that choices went by until now: of rows as they were measured this time.
struct Audit {
  size_t rows = 0;
  size_t fastest = 0;  // the automatic choice was
  size_t near = 0;     // it took at most kNear of the fastest's time
  double worst = 1;    // its time by that of the fastest
};

/// The time of the provider that is chosen among those of `row`.
double chosen_time(const RoutingRow& row, const RoutingTable& table) {
  const RoutingRow* const known = table.find(row.measured);
  std::vector<std::string> order;
  if (known != nullptr) {
    for (const MeasuredTime& t : known->times) order.push_back(t.provider);
  }
  for (const Provider* provider : providers()) order.emplace_back(provider->name());
  for (const std::string& name : order) {
    const auto found = std::ranges::find(row.times, name, &MeasuredTime::provider);
    if (found != row.times.end()) return found->microseconds;
  }
  return row.times.front().microseconds;
}

/// Times of one provider differ by as much from run to run.
constexpr double kNear = 1.01;

Audit audit(const std::vector<RoutingRow>& rows, const RoutingTable& table) {
  Audit result{.rows = rows.size()};
  for (const RoutingRow& row : rows) {
    const double ratio = chosen_time(row, table) / row.times.front().microseconds;
    if (ratio == 1) ++result.fastest;
    if (ratio <= kNear) ++result.near;
    result.worst = std::max(result.worst, ratio);
  }
  return result;
}

/// What became of the cases.
struct Calibration {
  RoutingTable table;
  std::vector<std::string> left_out;  // problem and reason
  size_t timed = 0;
};

/// Keeps the rows of one case, but for those of a case that an earlier problem had.
void keep(const std::string& problem, std::vector<RoutingRow> rows, Calibration& calibration) {
  std::string text;
  for (RoutingRow& row : rows) {
    const bool known = std::ranges::any_of(
        calibration.table.rows, [&](const RoutingRow& r) { return r.measured == row.measured; });
    if (known) {
      calibration.left_out.push_back(fmt::format("{}: an earlier problem is the same {} case",
                                                 problem, name(row.measured.direction)));
      continue;
    }
    text += row_text(row);
    calibration.table.rows.push_back(std::move(row));
  }
  if (rows.empty()) calibration.left_out.push_back(problem + ": fewer than two providers offer it");
  fmt::print(stderr, "{}\n{}", problem, text);
}

Calibration time_cases(const Arguments& arguments, const std::vector<std::string>& cases,
                       CaseTask task) {
  Calibration calibration;
  const auto begin = Clock::now();
  for (const std::string& problem : cases) {
    if (std::chrono::duration<double>(Clock::now() - begin).count() > arguments.budget) {
      calibration.left_out.push_back(fmt::format("{}: the budget of {} s was spent; raise --budget",
                                                 problem, arguments.budget));
      continue;
    }
    task.problem = problem;
    auto rows = time_case(task);
    if (!rows.ok()) {
      calibration.left_out.push_back(fmt::format("{}: {}", problem, rows.error().text()));
      continue;
    }
    ++calibration.timed;
    keep(problem, *std::move(rows), calibration);
  }
  calibration.table.fingerprint = fingerprint(task);
  return calibration;
}

Status check_alone(const Arguments& arguments) {
  if (!arguments.problem.empty() || !arguments.input.empty() || arguments.serve) {
    return usage(
        "--calibrate times a list of cases: drop --problem, --input and --serve, or give "
        "the problems by --cases FILE");
  }
  if (arguments.rank_count() == 1) return {};
  return usage(fmt::format("--ranks {}: --calibrate times providers on one rank; drop it",
                           arguments.rank_count()));
}

Result<Outcome> calibrate(const Arguments& arguments) {
  LONGSPAN_CHECK_OK(check_alone(arguments));
  LONGSPAN_TRY(const std::vector<std::string> cases, wanted_cases(arguments));
  LONGSPAN_TRY(OutputFile file, OutputFile::open(arguments.calibrate));
  CaseTask task{.providers = wanted_providers(arguments)};
  LONGSPAN_TRY(task.options, make_options(arguments));
  LONGSPAN_TRY(const auto devices, make_devices(arguments, 1, arguments.threads));
  task.device = devices.front();
  const Calibration calibration = time_cases(arguments, cases, task);
  if (calibration.table.rows.empty()) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} problems gave no row; the first: {}", cases.size(),
                             calibration.left_out.front()),
                 "calibrate"};
  }
  LONGSPAN_CHECK_OK(file.write(calibration.table.to_json()));
  LONGSPAN_CHECK_OK(file.commit());
  Outcome outcome;
  outcome.text = fmt::format("{} rows of {} cases in {}\n", calibration.table.rows.size(),
                             calibration.timed, arguments.calibrate);
  const auto before =
      task.options.routing_table ? task.options.routing_table : measured_routing_table();
  const Audit chosen = audit(calibration.table.rows, *before);
  outcome.text += fmt::format(
      "by the table until now the automatic choice was the fastest in {} of {} rows, took at most "
      "{:.2f} of the fastest's time in {}, and {:.3f} at worst\n",
      chosen.fastest, chosen.rows, kNear, chosen.near, chosen.worst);
  for (const std::string& text : calibration.left_out) {
    outcome.text += fmt::format("  left out: {}\n", text);
  }
  outcome.json = report_head("pass", "", 1, outcome.text);
  outcome.json["rows"] = calibration.table.rows.size();
  outcome.json["choice"] = {
      {"fastest", chosen.fastest}, {"near", chosen.near}, {"worst", chosen.worst}};
  outcome.json["left_out"] = calibration.left_out;
  return outcome;
}

}  // namespace

std::vector<std::string> case_lines(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#') lines.push_back(std::move(line));
  }
  return lines;
}

Outcome calibrate_command(const Arguments& arguments) {
  auto outcome = calibrate(arguments);
  return outcome.ok() ? *std::move(outcome) : failed(outcome.error(), "", 1);
}

}  // namespace longspan::tool
