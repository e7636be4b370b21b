#include "run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "longspan/version.h"

namespace longspan::tool {
namespace {

Json tensors_json(const RunReport& report) {
  Json tensors = Json::object();
  for (const NamedMeasure& named : report.measures) {
    tensors[named.name] = {{"relative_rms", named.measure.relative_rms},
                           {"max_abs", named.measure.max_abs},
                           {"max_rel", named.measure.max_rel}};
  }
  return tensors;
}

Json checks_json(const std::vector<Check>& checks) {
  Json list = Json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"value", check.value},
                    {"bar", check.bar},
                    {"pass", check.pass()},
                    {"detail", check.detail}});
  }
  return list;
}

/// Bytes of all ranks in one line.
std::string per_rank(const std::vector<int64_t>& values) {
  constexpr size_t kMost = 8;
  if (values.size() > kMost) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return fmt::format("{} to {} on {} ranks", grouped(*least), grouped(*most), values.size());
  }
  std::vector<std::string> texts;
  for (const int64_t value : values) texts.push_back(grouped(value));
  return fmt::format("{}", fmt::join(texts, "  "));
}

std::string shortened(const std::string& text) {
  constexpr size_t kMost = 300;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string head_text(const RunReport& report) {
  const Explanation& explanation = report.results->call->explanation();
  std::string text = fmt::format("longspan {} run\n", LONGSPAN_VERSION);
  text += fmt::format("  problem      {}\n", shortened(report.inputs->declared().text()));
  for (const std::string& note : report.inputs->notes)
    text += fmt::format("  inputs       {}\n", note);
  text += fmt::format("  ranks        {} on {} node{}, communicator {}, {} compute thread{}\n",
                      report.topology.ranks(), report.topology.nodes(),
                      report.topology.nodes() == 1 ? "" : "s", report.arguments->communicator,
                      report.threads, report.threads == 1 ? "" : "s");
  return text + choice_text(explanation);
}

std::string checks_text(const RunReport& report) {
  std::string text = "verified\n";
  for (const Check& check : report.checks) {
    const std::string value =
        check.bar == 0 ? fmt::format("{}", check.value) : fmt::format("{:.3e}", check.value);
    const std::string bar =
        check.bar == 0 ? fmt::format("{}", check.bar) : fmt::format("{:.3e}", check.bar);
    text += fmt::format("  {:<15} {:>10} <= {:<10} {:<5} {}\n", check.name, value, bar,
                        check.pass() ? "ok" : "FAIL", check.detail);
  }
  for (const std::string& note : report.notes) text += fmt::format("  note: {}\n", note);
  return text;
}

std::string figures_text(const RunReport& report) {
  const GroupResults& results = *report.results;
  const bool backward = !results.call->explanation().forward_only;
  std::string text = "per rank\n";
  text += fmt::format("  sent forward   {} bytes\n", per_rank(results.bytes_forward));
  if (backward) {
    text += fmt::format("  sent backward  {} bytes\n", per_rank(results.bytes_backward));
  }
  text += fmt::format("  peak memory    {} bytes\n", per_rank(results.peak_bytes));
  text += fmt::format("seconds: prepare {:.4f}, forward {:.4f}, ", results.prepare_seconds,
                      results.forward_seconds);
  if (backward) text += fmt::format("backward {:.4f}, ", results.backward_seconds);
  return text +
         fmt::format("check {:.4f}, total {:.4f}\n", report.seconds.check, report.seconds.total);
}

std::string verdict(const RunReport& report) {
  const auto failures = std::count_if(report.checks.begin(), report.checks.end(),
                                      [](const Check& check) { return !check.pass(); });
  if (failures == 0) return fmt::format("PASS {} checks", report.checks.size());
  std::vector<std::string> names;
  for (const Check& check : report.checks) {
    if (check.pass()) continue;
    names.push_back(fmt::format("{} {:.3e} > {:.3e}", check.name, check.value, check.bar));
  }
  return fmt::format("FAIL {} of {} checks: {}", failures, report.checks.size(),
                     fmt::join(names, "; "));
}

}  // namespace

std::string grouped(int64_t value) {
  const std::string digits = fmt::format("{}", value);
  const size_t sign = value < 0 ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

static std::string direction_text(const char* direction, const Selection& selection) {
  return fmt::format(
      "  {:<12} strategy {}{}\n  {:<12} provider {}{}\n", direction,
      selection.strategy ? selection.strategy->name : "none",
      selection.strategy_reason.empty() ? "" : fmt::format(" ({})", selection.strategy_reason), "",
      selection.provider ? selection.provider->name() : "none",
      selection.provider_reason.empty() ? "" : fmt::format(" ({})", selection.provider_reason));
}

std::string choice_text(const Explanation& explanation) {
  std::string text = fmt::format("  partition    {} ({})\n", name(explanation.partition),
                                 explanation.partition_reason);
  if (explanation.head_slices > 1) {
    text += fmt::format("  head slices  {} (one is computed while another travels)\n",
                        explanation.head_slices);
  }
  text += direction_text("forward", explanation.forward);
  if (!explanation.forward_only) return text + direction_text("backward", explanation.backward);
  return text + fmt::format("  {:<12} none, as asked: forward alone\n", "backward");
}

Json backward_json(const Explanation& explanation) {
  return explanation.forward_only ? Json() : direction_json(explanation.backward, explanation);
}

Json direction_json(const Selection& selection, const Explanation& explanation) {
  Json json = Json::object();
  json["strategy"] = selection.strategy ? Json(selection.strategy->name) : Json();
  json["provider"] = selection.provider ? Json(selection.provider->name()) : Json();
  json["partition"] = name(explanation.partition);
  json["head_slices"] = explanation.head_slices;
  json["strategy_reason"] = selection.strategy_reason;
  json["provider_reason"] = selection.provider_reason;
  json["partition_reason"] = explanation.partition_reason;
  return json;
}

Outcome report_run(const RunReport& report) {
  const GroupResults& results = *report.results;
  const Explanation& explanation = results.call->explanation();
  Json json = report_head("pass", report.inputs->declared().text(), report.topology.ranks(),
                          verdict(report));
  json["forward"] = direction_json(explanation.forward, explanation);
  json["backward"] = backward_json(explanation);
  json["tensors"] = tensors_json(report);
  json["checks"] = checks_json(report.checks);
  const bool backward = !explanation.forward_only;
  json["bytes_sent"] = {{"forward", results.bytes_forward},
                        {"backward", backward ? Json(results.bytes_backward) : Json()}};
  json["peak_bytes"] = results.peak_bytes;
  json["seconds"] = {{"inputs", report.seconds.inputs},
                     {"prepare", results.prepare_seconds},
                     {"forward", results.forward_seconds},
                     {"backward", backward ? Json(results.backward_seconds) : Json()},
                     {"check", report.seconds.check},
                     {"total", report.seconds.total}};
  std::vector<NamedDecline> declines = explanation.forward.declines;
  declines.insert(declines.end(), explanation.backward.declines.begin(),
                  explanation.backward.declines.end());
  json["declines"] = declines_json(declines);
  json["seed"] = report.inputs->seed;
  json["communicator"] = report.arguments->communicator;
  json["nodes"] = report.topology.nodes();
  json["repeat"] = report.arguments->repeat;
  std::vector<std::string> notes = report.inputs->notes;
  notes.insert(notes.end(), report.notes.begin(), report.notes.end());
  json["notes"] = notes;

  const bool passed = std::all_of(report.checks.begin(), report.checks.end(),
                                  [](const Check& check) { return check.pass(); });
  const bool non_finite = replace_non_finite(json);
  Outcome outcome;
  outcome.exit_code = passed && !non_finite ? kPass : kCheckFailed;
  if (outcome.exit_code != kPass) json["status"] = "fail";
  outcome.json = std::move(json);
  outcome.text =
      head_text(report) + checks_text(report) + figures_text(report) + verdict(report) + "\n";
  if (outcome.exit_code != kPass) outcome.error = "longspan: " + verdict(report) + "\n";
  return outcome;
}

}  // namespace longspan::tool
