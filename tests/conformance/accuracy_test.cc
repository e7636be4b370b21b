// Sixteen-bit results of eight ranks are as near to float64 as those of one; the float64 reference
// is what the definition says; gradients are the derivatives of the forward pass.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "numbers.h"
#include "progress.h"
#include "testkit/cases.h"
#include "testkit/modifications.h"
#include "testkit/options.h"
#include "testkit/oracle.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr double kMostLoss = 1.05;

class EightRanks : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(EightRanks, AreAsNearToFloat64AsOne) {
  const auto& [dtype, terms] = GetParam();
  Case c{.problem =
             fmt::format("dtype={} heads=8/2 dim=64 lengths=700,68 mask=causal {}", dtype, terms),
         .partition = "zigzag"};
  const tool::Inputs inputs = inputs_of(c);
  const auto alone = run_case(c, inputs, shared_device());
  ASSERT_TRUE(alone.ok()) << alone.error().text();
  const tool::Reference reference = reference_of(inputs);
  const auto one_rank = expect_right(inputs, *alone, reference);
  c.ranks = 8;
  c.nodes = 2;
  for (const StrategyPair& pair : all_pairs()) {
    c.forward = pair.forward;
    c.backward = pair.backward;
    SCOPED_TRACE(text(c));
    const auto results = run_case(c, inputs, shared_device());
    ASSERT_TRUE(results.ok()) << results.error().text();
    const auto measures = expect_right(inputs, *results, reference);
    for (const tool::Check& check : tool::check_against_one_rank(measures, one_rank, kMostLoss)) {
      EXPECT_TRUE(check.pass()) << check.name << ": " << check.value << " > " << check.bar;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, EightRanks,
    testing::Combine(testing::Values("f16", "bf16"),
                     testing::Values("",
                                     "window=200,0 softcap=20 alibi=default sink=learnable "
                                     "dropout=0.1 prefix=9,9 max_logit=true")));

TEST(SinkGradient, OfTermsThatCancelOverRanks) {
  expect_conforms({.problem = "dtype=f32 heads=1/1 dim=8 lengths=19,13 kv_lengths=15,21 "
                              "mask=bottom_right scale=0.5 sink=learnable",
                   .ranks = 3,
                   .nodes = 3,
                   .forward = "all_gather",
                   .backward = "hybrid",
                   .partition = "auto",
                   .seed = 160});
}

void expect_reference_is_the_definition(const Case& c) {
  SCOPED_TRACE(text(c));
  const tool::Inputs inputs = inputs_of(c);
  tool::Progress progress(false);
  const auto reference = tool::compute_reference(inputs, shared_device(), progress);
  ASSERT_TRUE(reference.ok()) << reference.error().text();
  const tool::Reference definition = attend_by_definition(inputs);
  const auto expected = tool::present(definition);
  const auto actual = tool::present(*reference);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const TensorView& view = expected[i].tensor->view;
    if (actual[i].name == "lse" || actual[i].name == "max_logit") {
      const tool::Measure logits = tool::measure_lse(actual[i].tensor->view, view);
      EXPECT_EQ(logits.inf_mismatches, 0) << actual[i].name;
      EXPECT_LE(logits.max_abs, 1e-12) << actual[i].name;
      continue;
    }
    const bool sums_of_ds = actual[i].name == "dq" || actual[i].name == "dk";
    EXPECT_LE(tool::measure(actual[i].tensor->view, view, 1).relative_rms,
              sums_of_ds ? 1e-12 : 1e-13)
        << actual[i].name;
  }
}

TEST(Reference, IsWhatTheDefinitionSays) {
  for (const std::string& feature : features()) {
    expect_reference_is_the_definition({.problem = "dtype=f64 " + feature});
  }
}

TEST(Reference, IsWhatTheDefinitionSaysOfEveryOption) {
  for (const Option& option : options()) {
    for (const char* shape :
         {"heads=4/2 dim=16 lengths=37,0,20 mask=causal layout=thd",
          "heads=6/2 dim=5 lengths=21,30 kv_lengths=40,12 padded=22,30 mask=bottom_right"}) {
      expect_reference_is_the_definition(
          with_option({.problem = fmt::format("dtype=f64 {}", shape)}, option));
    }
  }
}

class Derivatives : public testing::TestWithParam<Case> {
 protected:
  /// The sum of o * dout, from forward alone.
  double loss() {
    const auto results = run_case(GetParam(), inputs_, shared_device());
    EXPECT_TRUE(results.ok());
    double sum = 0;
    const TensorView& o = results->o.view;
    for (int64_t row = 0; row < o.rows(); ++row) {
      for (int64_t head = 0; head < o.heads; ++head) {
        for (int64_t i = 0; i < o.dim; ++i) {
          sum += tool::load(o, row, head, i) * tool::load(inputs_.dout.view, row, head, i);
        }
      }
    }
    return sum;
  }

  /// The loss's central difference for one element.
  double slope(const TensorView& x, int64_t row, int64_t head, int64_t column) {
    constexpr double kStep = 1e-4;
    const double middle = tool::load(x, row, head, column);
    tool::store(x, row, head, column, middle + kStep);
    const double above = loss();
    tool::store(x, row, head, column, middle - kStep);
    const double below = loss();
    tool::store(x, row, head, column, middle);
    return (above - below) / (2 * kStep);
  }

  void expect_gradient(const TensorView& x, const TensorView& gradient, const char* name) {
    for (int64_t row = 0; row < x.rows(); ++row) {
      for (int64_t head = 0; head < x.heads; ++head) {
        for (int64_t i = 0; i < x.dim; ++i) {
          EXPECT_NEAR(tool::load(gradient, row, head, i), slope(x, row, head, i), 1e-7)
              << name << " row " << row << " head " << head << " column " << i;
        }
      }
    }
  }

  tool::Inputs inputs_ = inputs_of(GetParam());
};

TEST_P(Derivatives, AreTheGradients) {
  const auto results = run_case(GetParam(), inputs_, shared_device());
  ASSERT_TRUE(results.ok()) << results.error().text();
  expect_gradient(inputs_.q.view, results->dq.view, "dq");
  expect_gradient(inputs_.k.view, results->dk.view, "dk");
  expect_gradient(inputs_.v.view, results->dv.view, "dv");
  if (results->dsink.view.data != nullptr) {
    expect_gradient(inputs_.sink.view, results->dsink.view, "dsink");
  }
  if (results->dbias.view.data != nullptr) {
    expect_gradient(inputs_.bias.view, results->dbias.view, "dbias");
  }
}

constexpr const char* kTiny =
    "dtype=f64 heads=4/2 dim=3 dim_v=2 lengths=4,2 kv_lengths=5,1 mask=bottom_right scale=0.8";

INSTANTIATE_TEST_SUITE_P(Engine, Derivatives,
                         testing::Values(Case{.problem = kTiny, .ranks = 3, .partition = "zigzag"},
                                         Case{.problem = kTiny,
                                              .ranks = 3,
                                              .forward = "all_to_all",
                                              .backward = "all_to_all",
                                              .partition = "striped",
                                              .provider = "cpu/reference"},
                                         Case{.problem = kTiny,
                                              .ranks = 2,
                                              .forward = "all_gather",
                                              .backward = "head_parallel",
                                              .partition = "balanced"}));

std::vector<Case> cases_of_terms() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& terms, const std::string& modification) {
    cases.push_back({.problem = fmt::format("{} {}", kTiny, terms),
                     .ranks = 2,
                     .forward = cases.size() % 2 == 0 ? "ring" : "all_to_all",
                     .backward = cases.size() % 3 == 0 ? "head_parallel" : "all_gather",
                     .partition = "zigzag",
                     .provider = cases.size() % 2 == 0 ? "cpu/tiled" : "cpu/reference",
                     .modification = modification});
  };
  for (const char* terms : {"softcap=0.8", "alibi=default", "bias=1,1", "bias=b,1", "bias=1,h",
                            "bias=b,h", "bias=1,1,1,s", "sink=off_by_one", "sink=learnable",
                            "dropout=0.4", "window=1,0", "prefix=2,1", "chunk=2"}) {
    add(terms, "");
  }
  for (const std::string& name : modification_names()) add("", name);
  add("softcap=1.5 alibi=default bias=b,h sink=learnable dropout=0.3 window=2,1 prefix=1,0", "all");
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Terms, Derivatives, testing::ValuesIn(cases_of_terms()));

}  // namespace
}  // namespace longspan::testkit
