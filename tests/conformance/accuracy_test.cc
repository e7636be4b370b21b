// Sixteen-bit results of eight ranks are as near to float64 as those of one; the float64 reference
// is what the definition says; gradients are the derivatives of the forward pass.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "numbers.h"
#include "progress.h"
#include "testkit/cases.h"
#include "testkit/oracle.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr double kMostLoss = 1.05;

class EightRanks : public testing::TestWithParam<const char*> {};

TEST_P(EightRanks, AreAsNearToFloat64AsOne) {
  Case c{.problem = fmt::format("dtype={} heads=8/2 dim=64 lengths=700,68 mask=causal", GetParam()),
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

INSTANTIATE_TEST_SUITE_P(Types, EightRanks, testing::Values("f16", "bf16"));

TEST(Reference, IsWhatTheDefinitionSays) {
  tool::Progress progress(false);
  for (const std::string& feature : features()) {
    const Case c{.problem = "dtype=f64 " + feature};
    SCOPED_TRACE(c.problem);
    const tool::Inputs inputs = inputs_of(c);
    const auto reference = tool::compute_reference(inputs, shared_device(), progress);
    ASSERT_TRUE(reference.ok()) << reference.error().text();
    const tool::Reference definition = attend_by_definition(inputs);
    EXPECT_LE(tool::measure(reference->o.view, definition.o.view, 1).relative_rms, 1e-13);
    EXPECT_LE(tool::measure(reference->dq.view, definition.dq.view, 1).relative_rms, 1e-12);
    EXPECT_LE(tool::measure(reference->dk.view, definition.dk.view, 1).relative_rms, 1e-12);
    EXPECT_LE(tool::measure(reference->dv.view, definition.dv.view, 1).relative_rms, 1e-13);
    const tool::Measure lse = tool::measure_lse(reference->lse.view, definition.lse.view);
    EXPECT_EQ(lse.inf_mismatches, 0);
    EXPECT_LE(lse.max_abs, 1e-12);
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

}  // namespace
}  // namespace longspan::testkit
