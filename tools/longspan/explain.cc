#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "commands.h"
#include "inputs.h"
#include "options.h"
#include "output_file.h"
#include "plan_file.h"
#include "run_report.h"
#include "setting.h"

namespace longspan::tool {
namespace {

using Calls = std::vector<std::shared_ptr<const Call>>;

struct Asked {
  Source source;
  Topology topology;
  Options options;
  Device device;
  Explanation explanation;
};

Result<Asked> ask(const Arguments& arguments) {
  Asked asked;
  LONGSPAN_TRY(asked.topology, make_topology(arguments));
  LONGSPAN_TRY(asked.options, make_options(arguments));
  LONGSPAN_TRY(asked.source, resolve_source(arguments.problem, arguments.input, arguments.seed));
  asked.device = cpu_device(arguments.threads);
  LONGSPAN_TRY(asked.explanation,
               explain(asked.source.problem, asked.topology, asked.device, asked.options));
  return asked;
}

/// What each rank would prepare. Ranks agree on it, but nothing is computed.
Result<Calls> prepare_all(const Asked& asked) {
  const auto communicators = make_threads_communicators(asked.topology);
  std::vector<std::optional<Result<std::shared_ptr<const Call>>>> prepared(communicators.size());
  const auto prepare = [&](size_t rank) -> Result<std::shared_ptr<const Call>> {
    LONGSPAN_TRY(const auto engine,
                 Engine::create(asked.options, communicators[rank], asked.device));
    return engine->prepare(asked.source.problem);
  };
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&, rank] { prepared[rank] = prepare(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  Calls calls;
  for (auto& call : prepared) {
    if (!call->ok()) return std::move(*call).error();
    calls.push_back(std::move(*call).value());
  }
  return calls;
}

struct DirectionPlan {
  std::vector<Cost> costs;
  std::vector<int64_t> workspace;
};

DirectionPlan direction_plan(const Calls& calls, const Asked& asked, Direction direction) {
  DirectionPlan plan;
  std::vector<Schedule> schedules;
  for (const auto& call : calls) {
    schedules.push_back(call->schedule(direction));
    plan.workspace.push_back(static_cast<int64_t>(call->workspace_bytes(direction)));
  }
  plan.costs = cost(schedules, asked.topology, asked.options.rates);
  return plan;
}

double slowest(const std::vector<Cost>& costs) {
  double seconds = 0;
  for (const Cost& cost : costs) seconds = std::max(seconds, cost.seconds);
  return seconds;
}

std::vector<int64_t> bytes_sent(const std::vector<Cost>& costs) {
  std::vector<int64_t> bytes;
  for (const Cost& cost : costs) bytes.push_back(cost.bytes_sent);
  return bytes;
}

Json saved_json(const Call& call) {
  Json list = Json::array();
  for (const BufferSpec& buffer : call.saved_layout()) {
    list.push_back({{"name", buffer.name},
                    {"dtype", name(buffer.dtype)},
                    {"shape", buffer.shape},
                    {"alias", buffer.alias}});
  }
  return list;
}

Json plan_json(const DirectionPlan& plan) {
  double flops = 0;
  for (const Cost& cost : plan.costs) flops += cost.flops;
  return {{"seconds", slowest(plan.costs)},
          {"bytes_sent", bytes_sent(plan.costs)},
          {"workspace_bytes", plan.workspace},
          {"flops", flops}};
}

std::string span_text(const std::vector<int64_t>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least == *most) return grouped(*least);
  return fmt::format("{} to {}", grouped(*least), grouped(*most));
}

std::string plan_text(const char* direction, const DirectionPlan& plan) {
  return fmt::format(
      "  {:<12} {} at the given rates; per rank: sends {} bytes, workspace {} bytes\n", direction,
      duration_text(slowest(plan.costs)), span_text(bytes_sent(plan.costs)),
      span_text(plan.workspace));
}

std::string saved_text(const Call& call) {
  std::string text = "saved for backward (rank 0)\n";
  for (const BufferSpec& buffer : call.saved_layout()) {
    text += fmt::format(
        "  {:<12} {:<5} {:<20} {}\n", buffer.name, name(buffer.dtype),
        fmt::format("[{}]", fmt::join(buffer.shape, ", ")),
        buffer.alias.empty() ? "allocated by the caller" : fmt::format("is {}", buffer.alias));
  }
  return text;
}

std::vector<NamedDecline> all_declines(const Explanation& explanation) {
  std::vector<NamedDecline> declines = explanation.forward.declines;
  declines.insert(declines.end(), explanation.backward.declines.begin(),
                  explanation.backward.declines.end());
  return declines;
}

std::string declines_text(const Explanation& explanation) {
  std::string text = "declines\n";
  for (const NamedDecline& decline : all_declines(explanation)) {
    text += fmt::format("  {:<14} {:<9} {:<10} {}\n", decline.name, decline.direction,
                        name(decline.decline.code), decline.decline.detail);
  }
  return all_declines(explanation).empty() ? "no declines\n" : text;
}

double all_pairs(const Problem& problem) {
  double pairs = 0;
  for (const Sequence& sequence : problem.lengths.sequences) {
    pairs += static_cast<double>(sequence.q_length) * static_cast<double>(sequence.k_length);
  }
  return pairs;
}

std::string problem_text(const Problem& problem) {
  const std::vector<std::string> features = feature_texts(problem);
  const int64_t visible = problem.visible_pairs();
  const double share = static_cast<double>(visible) / std::max(1.0, all_pairs(problem));
  return fmt::format(
      "problem        {}\n  features     {}\n  visible      {} pairs a head, {:.1f}% of all\n",
      problem.text(), features.empty() ? "none" : fmt::format("{}", fmt::join(features, " ")),
      grouped(visible), 100 * share);
}

std::string head_text(const Asked& asked) {
  std::string text = problem_text(asked.source.problem);
  text += fmt::format("  ranks        {} on {} node{}\n", asked.topology.ranks(),
                      asked.topology.nodes(), asked.topology.nodes() == 1 ? "" : "s");
  return text + choice_text(asked.explanation);
}

void add_choices(const Explanation& explanation, const Problem& problem, Json& json) {
  json["features"] = feature_texts(problem);
  json["visible_pairs"] = problem.visible_pairs();
  json["forward"] = direction_json(explanation.forward, explanation);
  json["backward"] = backward_json(explanation);
}

Outcome declined(const Asked& asked) {
  const Explanation& explanation = asked.explanation;
  Outcome outcome =
      failed({ErrorCode::kUnsupported, explanation.text(), "explain"}, asked.source.problem.text(),
             asked.topology.ranks(), all_declines(explanation));
  add_choices(explanation, asked.source.problem, outcome.json);
  outcome.text = head_text(asked) + declines_text(explanation);
  return outcome;
}

std::string estimates_text(const Calls& calls, const Asked& asked) {
  std::string text = "estimated\n";
  text += plan_text("forward", direction_plan(calls, asked, Direction::kForward));
  if (asked.explanation.forward_only) return text;
  return text + plan_text("backward", direction_plan(calls, asked, Direction::kBackward)) +
         saved_text(*calls.front());
}

Outcome explained(const Asked& asked, const Calls& calls) {
  const Explanation& explanation = calls.front()->explanation();
  Outcome outcome;
  outcome.json = report_head("pass", asked.source.problem.text(), asked.topology.ranks(),
                             "would run as stated");
  add_choices(explanation, asked.source.problem, outcome.json);
  outcome.json["forward"].update(plan_json(direction_plan(calls, asked, Direction::kForward)));
  if (!explanation.forward_only) {
    outcome.json["backward"].update(plan_json(direction_plan(calls, asked, Direction::kBackward)));
  }
  outcome.json["saved"] = saved_json(*calls.front());
  outcome.json["declines"] = declines_json(all_declines(explanation));
  outcome.text = head_text(asked) + estimates_text(calls, asked) + declines_text(explanation);
  return outcome;
}

Result<Outcome> explain_and_save(const Arguments& arguments) {
  LONGSPAN_TRY(const Asked asked, ask(arguments));
  std::optional<OutputFile> file;
  if (!arguments.save_plan.empty()) {
    LONGSPAN_TRY(file, OutputFile::open(arguments.save_plan));
  }
  if (!asked.explanation.ok()) return declined(asked);
  LONGSPAN_TRY(const Calls calls, prepare_all(asked));
  if (file) LONGSPAN_CHECK_OK(save_plan(*file, *calls.front()));
  return explained(asked, calls);
}

}  // namespace

Outcome explain_command(const Arguments& arguments) {
  const auto outcome = explain_and_save(arguments);
  if (outcome.ok()) return *outcome;
  return failed(outcome.error(), arguments.problem, arguments.rank_count());
}

}  // namespace longspan::tool
