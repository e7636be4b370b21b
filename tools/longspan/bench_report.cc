#include "bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "run_report.h"

namespace longspan::tool {
namespace {

Json or_null(const std::vector<double>& values) { return values.empty() ? Json() : Json(values); }

Json flops_json(const Call& call, Direction direction) { return call.schedule(direction).flops(); }

std::string provider_summary(const Selection& selection) {
  return std::string(selection.provider->summary());
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> totals(const Slice& slice) {
  std::vector<double> sums = slice.forward;
  for (size_t i = 0; i < slice.backward.size(); ++i) sums[i] += slice.backward[i];
  return sums;
}

Json slice_json(const Slice& slice) {
  return {
      {"forward_us", slice.forward},
      {"backward_us", or_null(slice.backward)},
      {"host_us", {{"forward", slice.host_forward}, {"backward", or_null(slice.host_backward)}}},
      {"wall_us", slice.wall}};
}

Json check_json(const BenchCheck& check) {
  Json errors = Json::object();
  for (const NamedMeasure& named : check.measures) {
    const bool logit = named.name == "lse" || named.name == "max_logit";
    errors[named.name] = logit ? named.measure.max_rel : named.measure.relative_rms;
  }
  Json failed = Json::array();
  for (const Check& c : check.checks) {
    if (!c.pass()) failed.push_back(fmt::format("{} {:.3e} > {:.3e}", c.name, c.value, c.bar));
  }
  return {{"pass", check.pass()}, {"relative_rms", errors}, {"failed", failed}};
}

Json audit_json(const BenchGroup& group, const BenchAudit& audit) {
  const Call& call = group.call();
  const Explanation& explanation = call.explanation();
  const bool backward = !explanation.forward_only;
  std::vector<int64_t> bytes;
  for (const auto& rank : group.ranks()) bytes.push_back(rank->results().peak_bytes);
  Json json;
  json["forward"] = direction_json(explanation.forward, explanation);
  json["forward"]["provider_summary"] = provider_summary(explanation.forward);
  json["backward"] = backward_json(explanation);
  if (backward) json["backward"]["provider_summary"] = provider_summary(explanation.backward);
  json["flops_of_rank_0"] = {
      {"forward", flops_json(call, Direction::kForward)},
      {"backward", backward ? flops_json(call, Direction::kBackward) : Json()}};
  json["attend_launches"] = audit.attend_launches;
  json["fills"] = audit.fills;
  json["bytes_sent"] = {{"forward", audit.bytes_forward},
                        {"backward", backward ? Json(audit.bytes_backward) : Json()}};
  // Workspace and saved buffers; the engine holds no other memory in reserve.
  json["peak_bytes"] = {{"allocated", bytes}, {"reserved", bytes}};
  return json;
}

}  // namespace longspan::tool
