// Twenty thousand small random cases against the oracle: drawn problem, options, callbacks, dtype,
// strategies, partition, ranks, nodes and provider.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "testkit/conformance.h"
#include "testkit/draws.h"

namespace longspan::testkit {
namespace {

constexpr int kShards = 8;
constexpr int kProblems = 320;  // of a shard
constexpr int kRuns = 8;        // of a problem

/// Worst figures over all cases, for the log.
class Figures {
 public:
  void add(DType dtype, const std::vector<tool::NamedMeasure>& measures) {
    ++cases_;
    for (const tool::NamedMeasure& m : measures) {
      double& worst = worst_[{std::string(name(dtype)), m.name}];
      const bool statistic = m.name == "lse" || m.name == "max_logit";
      worst = std::max(worst, statistic ? m.measure.max_rel : m.measure.relative_rms);
    }
  }
  void print() const {
    fmt::print("{} cases; worst relative RMS (lse, max_logit: |error| / max(1, |value|)):\n",
               cases_);
    for (const auto& [key, worst] : worst_) {
      fmt::print("  {:5} {:10} {:.2e}\n", key.first, key.second, worst);
    }
  }

 private:
  int64_t cases_ = 0;
  std::map<std::pair<std::string, std::string>, double> worst_;
};

class Differential : public testing::TestWithParam<int> {
 protected:
  static Figures& figures() {
    static Figures all;
    return all;
  }
  static void TearDownTestSuite() { figures().print(); }
};

TEST_P(Differential, EqualsTheOracle) {
  Random random(1000 + static_cast<uint64_t>(GetParam()));
  for (uint64_t problem = 0; problem < kProblems; ++problem) {
    const Drawn drawn = draw_problem(random, problem);
    const tool::Inputs inputs = inputs_of(drawn.base);
    const tool::Reference reference = reference_of(inputs, drawn.backward.front() == kNoStrategy);
    for (int run = 0; run < kRuns; ++run) {
      const Case c = draw_run(random, drawn);
      SCOPED_TRACE(text(c));
      const auto results = run_case(c, inputs, shared_device());
      ASSERT_TRUE(results.ok()) << results.error().text();
      figures().add(inputs.problem.dtype, expect_right(inputs, *results, reference));
    }
    ASSERT_FALSE(HasFailure()) << "the cases above; the rest of the shard is left out";
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, Differential, testing::Range(0, kShards));

}  // namespace
}  // namespace longspan::testkit
