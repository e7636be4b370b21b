#include "verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace longspan::tool {
namespace {

/// A tensor of few elements may lie further from float64 than the bar when it is rounded perfectly,
/// and a result that FP32 noise pushed over the middle between two values a little more.
constexpr double kRoundingSlack = 1.05;

/// The first problem of a kind, counted: its bar is 0.
Check none_allowed(std::string name, int64_t count, std::string detail) {
  return {.name = std::move(name),
          .value = static_cast<double>(count),
          .bar = 0,
          .detail = std::move(detail)};
}

/// dout of rows without a token is no part of the problem.
double rms_of_dout(const Inputs& inputs) {
  if (inputs.dout.view.data == nullptr) return 0;  // forward alone
  Tensor dout = whole_tensor(inputs.problem, tensor_spec(inputs.problem, "dout"));
  std::copy_n(inputs.dout.memory.data(), inputs.dout.memory.size(), dout.memory.data());
  clear_padding(dout, token_rows(inputs.problem, Side::kQuery));
  return rms(dout.view);
}

/// Judged by largest deviation, with -inf at equal places.
bool is_logit(std::string_view name) { return name == "lse" || name == "max_logit"; }

}  // namespace

std::vector<NamedMeasure> measure_all(const Inputs& inputs, const GroupResults& results,
                                      const Reference& reference) {
  const double dout_rms = rms_of_dout(inputs);
  const std::vector<NamedConstResult> expected = present(reference);
  std::vector<NamedMeasure> measures;
  for (const auto& [name, tensor] : present(results)) {
    const size_t i = measures.size();
    const TensorView& view = expected[i].tensor->view;
    measures.push_back({std::string(name),
                        is_logit(name) ? measure_lse(tensor->view, view)
                                       : measure(tensor->view, view, name == "o" ? 1 : dout_rms)});
  }
  return measures;
}

std::vector<Check> check_measures(const std::vector<NamedMeasure>& measures, const Bars& bars) {
  std::vector<Check> checks;
  for (const NamedMeasure& named : measures) {
    const Measure& measure = named.measure;
    checks.push_back(none_allowed(
        named.name + " NaN", measure.nan_count,
        measure.nan_count == 0 ? "NaN elements"
                               : fmt::format("NaN elements, the first at {}", measure.first_nan)));
  }
  for (const NamedMeasure& named : measures) {
    const Measure& measure = named.measure;
    if (is_logit(named.name)) {
      checks.push_back(
          none_allowed(named.name + " -inf", measure.inf_mismatches, "-inf on one side only"));
      checks.push_back({named.name, measure.max_rel, bars.lse,
                        fmt::format("largest |error| / max(1, |{}|)", named.name)});
    } else {
      const double bar = std::max(bars.relative_rms, kRoundingSlack * measure.rounding);
      checks.push_back({named.name, measure.relative_rms, bar, "relative RMS"});
    }
  }
  return checks;
}

Check check_padding(const Problem& problem, const GroupResults& results) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const std::vector<bool> q = token_rows(problem, Side::kQuery);
  const std::vector<bool> k = token_rows(problem, Side::kKey);
  int64_t faults = 0;
  for (const auto& [name, tensor] : present(results)) {
    if (!has_rows(name)) continue;
    const bool queries = tensor_spec(problem, name).side == Side::kQuery;
    faults += padding_faults(tensor->view, queries ? q : k, name == "lse" ? kNone : 0);
  }
  return none_allowed("padding rows", faults, "elements that are not 0 (LSE: -inf)");
}

Check check_max_logit(const GroupResults& results) {
  return none_allowed("max_logit ranks", results.unequal_max_logits,
                      "ranks whose bits are not those of rank 0");
}

std::vector<Check> check_against_one_rank(const std::vector<NamedMeasure>& measures,
                                          const std::vector<NamedMeasure>& one_rank,
                                          double factor) {
  constexpr double kNoise = 2e-6;  // the bar of f32
  std::vector<Check> checks;
  for (size_t i = 0; i < measures.size(); ++i) {
    if (is_logit(measures[i].name)) continue;
    const double alone = one_rank[i].measure.relative_rms;
    checks.push_back(
        {.name = measures[i].name + " vs one rank",
         .value = measures[i].measure.relative_rms,
         .bar = std::max(factor * alone, kNoise),
         .detail = fmt::format("relative RMS; {:.3g} x that of one rank, {:.3e}", factor, alone)});
  }
  return checks;
}

}  // namespace longspan::tool
