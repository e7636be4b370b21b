#include "testkit/conformance.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "testkit/modifications.h"
#include "testkit/oracle.h"

namespace longspan::testkit {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFewPairs = 2000;

bool same_bytes(const tool::Tensor& a, const tool::Tensor& b) {
  const size_t size = a.memory.size();
  return size == b.memory.size() &&
         (size == 0 || std::memcmp(a.memory.data(), b.memory.data(), size) == 0);
}

void expect_passes(const std::vector<tool::Check>& checks) {
  for (const tool::Check& check : checks) {
    EXPECT_TRUE(check.pass()) << check.name << ": " << check.value << " > " << check.bar << " ("
                              << check.detail << ")";
  }
}

/// One ulp of a logit in the accumulator type; two in float64, where the reference rounds as well.
double ulp_of(double value, DType dtype) {
  return std::ldexp(1.0, std::ilogb(value) - (dtype == DType::kF64 ? 51 : 23));
}

/// A gradient that is small by cancellation in most rows may lie further from float64 than its bar
/// even when it is made exactly of O and LSE as they are returned. Counts that as its rounding.
void count_rounded_statistics(const tool::Inputs& inputs, const tool::Reference& reference,
                              std::vector<tool::NamedMeasure>& measures) {
  tool::Reference rounded = attend_with_rounded_statistics(inputs);
  tool::GroupResults results;
  static_cast<tool::ResultTensors&>(results) = std::move(rounded);
  const auto floors = tool::measure_all(inputs, results, reference);
  for (size_t i = 0; i < measures.size(); ++i) {
    if (!measures[i].name.starts_with('d')) continue;
    double& rounding = measures[i].measure.rounding;
    rounding = std::max(rounding, floors[i].measure.relative_rms);
  }
}

bool all_pass(const std::vector<tool::Check>& checks) {
  return std::all_of(checks.begin(), checks.end(), [](const tool::Check& c) { return c.pass(); });
}

template <class T>
T required(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  ADD_FAILURE() << result.error().text();
  throw std::runtime_error(result.error().text());
}

tool::Source source_of(const Case& c) {
  tool::Source source = required(tool::resolve_source(c.problem, "", c.seed));
  source.problem.modification = modification_named(c.modification);
  return source;
}

}  // namespace

std::string text(const Case& c) {
  return fmt::format(
      "--problem '{}' --ranks {} --nodes {} --forward {} --backward {} --partition {} "
      "--head-slices {} --provider require:{} --seed {}{}{}",
      c.problem, c.ranks, c.nodes, c.forward, c.backward, c.partition, c.head_slices, c.provider,
      c.seed, c.modification.empty() ? "" : ", modification ", c.modification);
}

const Device& shared_device() {
  static const Device device = cpu_device(kThreads);
  return device;
}

Options options_of(const Case& c) {
  Options options;
  const Routing routing{RoutingMode::kRequire, c.provider};
  options.forward = {c.forward, routing};
  options.backward = {c.backward, routing};
  options.partition = c.partition;
  options.head_slices = c.head_slices;
  return options;
}

tool::Inputs inputs_of(const Case& c) { return required(tool::make_inputs(source_of(c))); }

tool::Inputs inputs_of(const Case& c, std::vector<int32_t> q, std::vector<int32_t> k) {
  tool::Source source = source_of(c);
  source.uniform_lengths = true;  // every token has values
  tool::Inputs inputs = required(tool::make_inputs(source));
  inputs.lengths_q = std::move(q);
  inputs.lengths_k = std::move(k);
  inputs.problem =
      required(with_lengths(inputs.declared(), {.q = inputs.lengths_q, .k = inputs.lengths_k}));
  return inputs;
}

Result<tool::GroupResults> run_case(const Case& c, const tool::Inputs& inputs, const Device& device,
                                    int repeat) {
  return tool::run_threads({.inputs = &inputs,
                            .options = options_of(c),
                            .topology = Topology::blocks(c.ranks, c.nodes),
                            .device = device,
                            .repeat = repeat});
}

tool::Reference reference_of(const tool::Inputs& inputs, bool forward_only) {
  return required(make_reference(inputs, shared_device(), forward_only));
}

Judgement judge(const tool::Inputs& inputs, const tool::GroupResults& results,
                const tool::Reference& reference, double logit) {
  std::vector<tool::NamedMeasure> measures = tool::measure_all(inputs, results, reference);
  tool::Bars bars = tool::bars(inputs.problem.dtype, tool::largest_finite(reference.lse.view));
  bars.relative_rms = std::max(bars.relative_rms, ulp_of(logit, inputs.problem.dtype));
  const bool small = inputs.problem.visible_pairs() < kFewPairs;
  if (small && !all_pass(tool::check_measures(measures, bars))) {
    count_rounded_statistics(inputs, reference, measures);
  }
  std::vector<tool::Check> checks = tool::check_measures(measures, bars);
  checks.push_back(tool::check_padding(inputs.problem, results));
  checks.push_back(tool::check_max_logit(results));
  return {std::move(measures), std::move(checks)};
}

std::vector<tool::NamedMeasure> expect_right(const tool::Inputs& inputs,
                                             const tool::GroupResults& results,
                                             const tool::Reference& reference, double logit) {
  Judgement judgement = judge(inputs, results, reference, logit);
  expect_passes(judgement.checks);
  return std::move(judgement.measures);
}

void expect_declined(const Case& c) {
  const tool::Inputs inputs = inputs_of(c);
  const auto explained = explain(inputs.declared(), Topology::blocks(c.ranks, c.nodes),
                                 shared_device(), options_of(c));
  ASSERT_TRUE(explained.ok()) << explained.error().text();
  EXPECT_FALSE(explained->ok());
  std::vector<NamedDecline> declines = explained->forward.declines;
  declines.insert(declines.end(), explained->backward.declines.begin(),
                  explained->backward.declines.end());
  EXPECT_TRUE(std::any_of(declines.begin(), declines.end(),
                          [&](const NamedDecline& d) { return d.decline.code == *c.declined; }))
      << "no decline has the code " << name(*c.declined) << ": " << explained->text();
  const auto results = run_case(c, inputs, shared_device());
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.error().code, ErrorCode::kUnsupported) << results.error().text();
  EXPECT_THAT(results.error().message, HasSubstr(std::string(name(*c.declined))));
}

void expect_conforms(const Case& c) {
  SCOPED_TRACE("longspan run " + text(c));
  if (c.declined) return expect_declined(c);
  const tool::Inputs inputs = inputs_of(c);
  expect_right_run(c, inputs, reference_of(inputs, c.backward == kNoStrategy));
}

void expect_right_run(const Case& c, const tool::Inputs& inputs, const tool::Reference& reference,
                      double logit) {
  SCOPED_TRACE(text(c));
  const auto results = run_case(c, inputs, shared_device());
  ASSERT_TRUE(results.ok()) << results.error().text();
  expect_right(inputs, *results, reference, logit);
}

std::string different_results(const tool::ResultTensors& a, const tool::ResultTensors& b) {
  const auto left = tool::present(a);
  const auto right = tool::present(b);
  EXPECT_EQ(left.size(), right.size());
  std::string names;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!same_bytes(*left[i].tensor, *right[i].tensor)) names += fmt::format("{} ", left[i].name);
  }
  return names;
}

}  // namespace longspan::testkit
