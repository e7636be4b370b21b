#include "support.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <variant>

#include "commands.h"
#include "longspan/partition.h"
#include "longspan/provider.h"
#include "longspan/schedule.h"
#include "longspan/version.h"

namespace longspan::tool {
namespace {

constexpr std::array<Direction, 2> kDirections = {Direction::kForward, Direction::kBackward};

Result<Setting> setting_of(const Problem& problem, std::string_view strategy, int ranks,
                           int nodes) {
  Topology topology = Topology::blocks(ranks, nodes);
  LONGSPAN_TRY(Partition partition,
               Partition::make(problem, choose_partition(problem, ranks).kind, ranks));
  return Setting{.problem = problem,
                 .partition = std::move(partition),
                 .topology = std::move(topology),
                 .forward = std::string(strategy),
                 .backward = std::string(strategy)};
}

Result<Answers> ask(const Strategy& strategy, const Problem& problem) {
  LONGSPAN_TRY(const Setting setting,
               setting_of(problem, strategy.name, kSupportRanks, kSupportNodes));
  return Answers{strategy.consider(setting, Direction::kForward),
                 strategy.consider(setting, Direction::kBackward)};
}

/// With the tiles of a single rank, which sees every shape whole.
Result<Answers> ask(const Provider& provider, const Problem& problem, const Device& device) {
  const Strategy& strategy = *strategies().front();
  LONGSPAN_TRY(const Setting setting, setting_of(problem, strategy.name, 1, 1));
  Answers answers;
  for (size_t i = 0; i < kDirections.size(); ++i) {
    LONGSPAN_TRY(const Schedule schedule, strategy.build(setting, kDirections[i], 0));
    answers[i] = provider.consider(schedule.tiles, device);
  }
  return answers;
}

/// Whether the provider declines every problem on the device.
bool is_elsewhere(const Answers& answers) {
  return std::all_of(answers.begin(), answers.end(), [](const Verdict& verdict) {
    const Decline* decline = declined(verdict);
    return decline != nullptr &&
           (decline->code == DeclineCode::kDevice || decline->code == DeclineCode::kNotBuilt);
  });
}

/// The providers that compute on the device.
Result<std::vector<const Provider*>> providers_on(const Device& device) {
  LONGSPAN_TRY(const Problem problem, parse_problem(kSupportBase));
  std::vector<const Provider*> result;
  for (const Provider* provider : providers()) {
    LONGSPAN_TRY(const Answers answers, ask(*provider, problem, device));
    if (!is_elsewhere(answers)) result.push_back(provider);
  }
  return result;
}

Result<SupportRow> row_of(const SupportOption& option, std::span<const Provider* const> asked,
                          const Device& device) {
  SupportRow row{.option = option.name, .problem = option.problem.text(), .answers = {}};
  for (const Strategy* strategy : strategies()) {
    LONGSPAN_TRY(Answers answers, ask(*strategy, option.problem));
    row.answers.push_back(std::move(answers));
  }
  for (const Provider* provider : asked) {
    LONGSPAN_TRY(Answers answers, ask(*provider, option.problem, device));
    row.answers.push_back(std::move(answers));
  }
  return row;
}

std::string cell(const Verdict& verdict) {
  if (const Decline* decline = declined(verdict)) return std::string(name(decline->code));
  return std::get<Offer>(verdict).partials_16bit ? "yes, 16-bit partials" : "yes";
}

std::string cell(const Answers& answers) {
  const std::string forward = cell(answers[0]);
  const std::string backward = cell(answers[1]);
  return forward == backward ? forward : forward + " / " + backward;
}

/// Where one decline was given. In the order of the matrix, each once.
struct Places {
  std::vector<std::string> who;
  std::vector<std::string> options;
};

void add_once(std::vector<std::string>& list, std::string text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
}

std::map<std::string, Places> places_of_declines(const SupportMatrix& matrix) {
  std::map<std::string, Places> places;
  for (const SupportRow& row : matrix.rows) {
    for (size_t column = 0; column < row.answers.size(); ++column) {
      for (const Direction direction : kDirections) {
        const Decline* decline = declined(row.answers[column][static_cast<size_t>(direction)]);
        if (decline == nullptr) continue;
        Places& at = places[fmt::format("`{}`: {}", name(decline->code), decline->detail)];
        add_once(at.who, fmt::format("{} {}", matrix.names[column], name(direction)));
        add_once(at.options, "`" + row.option + "`");
      }
    }
  }
  return places;
}

std::string declines_markdown(const SupportMatrix& matrix) {
  std::string markdown;
  for (const auto& [text, at] : places_of_declines(matrix)) {
    const bool always = at.options.size() == matrix.rows.size();
    markdown +=
        fmt::format("- {}\n  ({}; {})\n", text, fmt::join(at.who, ", "),
                    always ? "every option" : fmt::format("{}", fmt::join(at.options, ", ")));
  }
  return markdown;
}

std::string table_markdown(const SupportMatrix& matrix) {
  std::string text = fmt::format("| option | {} |\n|---|", fmt::join(matrix.names, " | "));
  for (size_t i = 0; i < matrix.names.size(); ++i) text += "---|";
  text += "\n";
  for (const SupportRow& row : matrix.rows) {
    text += fmt::format("| `{}` |", row.option);
    for (const Answers& answers : row.answers) text += fmt::format(" {} |", cell(answers));
    text += "\n";
  }
  return text;
}

std::string markdown(const SupportMatrix& matrix) {
  return fmt::format(
      "# Support\n\n"
      "Written by `longspan support`, which asks every strategy ({} ranks on {} nodes) and every\n"
      "provider of the CPU the questions that a run asks them.\n\n"
      "Every option changes `{}` as it says. *yes*: offered.\n"
      "Else the code of the decline, whose text stands below. *forward / backward* where the two\n"
      "differ; a run needs both, unless it asks for forward alone (`--backward none`).\n\n"
      "{}\n## Declines\n\n{}",
      kSupportRanks, kSupportNodes, kSupportBase, table_markdown(matrix),
      declines_markdown(matrix));
}

Json direction_json(const SupportMatrix& matrix, const SupportRow& row, size_t direction) {
  Json json = Json::object();
  for (size_t column = 0; column < row.answers.size(); ++column) {
    const Decline* decline = declined(row.answers[column][direction]);
    json[matrix.names[column]] =
        decline == nullptr ? Json()
                           : Json{{"code", name(decline->code)}, {"detail", decline->detail}};
  }
  return json;
}

Json matrix_json(const SupportMatrix& matrix) {
  Json rows = Json::array();
  for (const SupportRow& row : matrix.rows) {
    rows.push_back({{"option", row.option},
                    {"problem", row.problem},
                    {"forward", direction_json(matrix, row, 0)},
                    {"backward", direction_json(matrix, row, 1)}});
  }
  return {{"status", "pass"},       {"version", LONGSPAN_VERSION}, {"ranks", kSupportRanks},
          {"nodes", kSupportNodes}, {"base", kSupportBase},        {"rows", rows}};
}

}  // namespace

Result<SupportMatrix> support_matrix() {
  const Device device = cpu_device(1);
  SupportMatrix matrix;
  for (const Strategy* strategy : strategies()) matrix.names.emplace_back(strategy->name);
  LONGSPAN_TRY(const std::vector<const Provider*> asked, providers_on(device));
  for (const Provider* provider : asked) matrix.names.emplace_back(provider->name());
  LONGSPAN_TRY(const std::vector<SupportOption> options, support_options());
  for (const SupportOption& option : options) {
    LONGSPAN_TRY(SupportRow row, row_of(option, asked, device));
    matrix.rows.push_back(std::move(row));
  }
  return matrix;
}

Outcome support_command(const Arguments& arguments) {
  const auto matrix = support_matrix();
  if (!matrix.ok()) return failed(matrix.error(), "", 0);
  Outcome outcome;
  outcome.json = matrix_json(*matrix);
  outcome.text = arguments.format == "json" ? dump(outcome.json) : markdown(*matrix);
  return outcome;
}

}  // namespace longspan::tool
