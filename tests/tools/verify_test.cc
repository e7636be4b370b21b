// A run that is right passes; one wrong element, a NaN or a touched padding row fails it.
#include "verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "numbers.h"
#include "run_report.h"

namespace longspan::tool {
namespace {

class Verified : public testing::Test {
 protected:
  void SetUp() override {
    auto source = resolve_source(
        "dtype=f32 heads=4/2 dim=16 lengths=40,0,7 padded=48,2,7 mask=causal bias=1,h "
        "sink=learnable max_logit=true",
        "", 5);
    ASSERT_TRUE(source.ok());
    auto inputs = make_inputs(*source);
    ASSERT_TRUE(inputs.ok());
    inputs_ = *std::move(inputs);
    device_ = cpu_device(2);
    auto results = run_threads(
        {.inputs = &inputs_, .options = {}, .topology = Topology::blocks(3, 1), .device = device_});
    ASSERT_TRUE(results.ok()) << results.error().text();
    results_ = *std::move(results);
    Progress progress(false);
    auto reference = compute_reference(inputs_, device_, progress);
    ASSERT_TRUE(reference.ok()) << reference.error().text();
    reference_ = *std::move(reference);
  }

  Outcome outcome() {
    RunReport report;
    report.arguments = &arguments_;
    report.inputs = &inputs_;
    report.results = &results_;
    report.topology = Topology::blocks(3, 1);
    report.measures = measure_all(inputs_, results_, reference_);
    report.checks = check_measures(report.measures, bars(DType::kF32, 1));
    report.checks.push_back(check_padding(inputs_.problem, results_));
    report.checks.push_back(check_max_logit(results_));
    return report_run(report);
  }

  static std::vector<std::string> failures(const Outcome& outcome) {
    std::vector<std::string> names;
    for (const Json& check : outcome.json["checks"]) {
      if (!check["pass"].get<bool>()) names.push_back(check["name"]);
    }
    return names;
  }

  Arguments arguments_;
  Inputs inputs_;
  Device device_;
  GroupResults results_;
  Reference reference_;
};

using Names = std::vector<std::string>;

TEST_F(Verified, RightResultsPass) {
  const Outcome good = outcome();
  EXPECT_EQ(good.exit_code, kPass) << good.text;
  EXPECT_EQ(good.json["status"], "pass");
  EXPECT_EQ(failures(good), Names{});
  EXPECT_EQ(good.json["bytes_sent"]["forward"].size(), 3u);
}

TEST_F(Verified, OneWrongElementOfAGradientFails) {
  store(results_.dk.view, 3, 1, 2, load(results_.dk.view, 3, 1, 2) + 0.01);
  const Outcome bad = outcome();
  EXPECT_EQ(bad.exit_code, kCheckFailed);
  EXPECT_EQ(bad.json["status"], "fail");
  EXPECT_EQ(failures(bad), Names{"dk"});
  EXPECT_FALSE(bad.error.empty());
}

TEST_F(Verified, NaNFailsAndStaysOutOfTheJson) {
  store(results_.o.view, 0, 0, 0, std::numeric_limits<double>::quiet_NaN());
  const Outcome bad = outcome();
  EXPECT_EQ(bad.exit_code, kCheckFailed);
  EXPECT_EQ(failures(bad), (Names{"o NaN", "o"}));
  EXPECT_TRUE(bad.json["tensors"]["o"]["relative_rms"].is_null());
  EXPECT_TRUE(Json::accept(dump(bad.json)));  // NaN is no JSON
}

TEST_F(Verified, AShiftedLseFails) {
  store(results_.lse.view, 5, 2, 0, load(results_.lse.view, 5, 2, 0) + 1e-3);
  EXPECT_EQ(failures(outcome()), Names{"lse"});
}

TEST_F(Verified, AnInfinityOnOneSideFails) {
  store(results_.lse.view, 5, 2, 0, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(failures(outcome()), Names{"lse -inf"});
}

TEST_F(Verified, OneWrongValueOfAHeadFails) {
  store(results_.dsink.view, 0, 3, 0, 1.0001 * load(results_.dsink.view, 0, 3, 0));
  EXPECT_EQ(failures(outcome()), Names{"dsink"});
  store(results_.max_logit.view, 0, 1, 0, load(results_.max_logit.view, 0, 1, 0) + 1e-3);
  EXPECT_EQ(failures(outcome()), (Names{"max_logit", "dsink"}));
}

TEST_F(Verified, AWrongElementOfTheBiasGradientFails) {
  store(results_.dbias.view, 7, 1, 5, load(results_.dbias.view, 7, 1, 5) + 0.01);
  EXPECT_EQ(failures(outcome()), Names{"dbias"});
}

TEST_F(Verified, RanksAddUpAndAgreeOnTheLargestLogits) {
  RankResults first;
  first.call = results_.call;
  static_cast<ResultTensors&>(first) = make_rank_results(*results_.call, 0);
  GroupResults twice = make_group_results(inputs_.problem);
  for (const auto& [name, tensor] : present(first)) {
    for (int64_t i = 0; !has_rows(name) && i < tensor->view.heads; ++i) {
      store(tensor->view, 0, i, 0, 0.5);
    }
  }
  gather(first, results_.call->partition(), 0, twice);
  EXPECT_EQ(twice.unequal_max_logits, 0);
  store(first.max_logit.view, 0, 2, 0, 0.75);
  gather(first, results_.call->partition(), 1, twice);
  EXPECT_EQ(load(twice.dsink.view, 0, 3, 0), 1.0);
  EXPECT_EQ(load(twice.dbias.view, 0, 1, 0), 1.0);
  EXPECT_EQ(load(twice.max_logit.view, 0, 2, 0), 0.5);
  EXPECT_EQ(twice.unequal_max_logits, 1);
  EXPECT_FALSE(check_max_logit(twice).pass());
}

TEST_F(Verified, ATouchedPaddingRowFails) {
  store(results_.dq.view, 44, 0, 0, 1e-30);
  EXPECT_EQ(failures(outcome()), Names{"padding rows"});
}

TEST(OneRankRule, HoldsErrorsAgainstThoseOfOneRank) {
  const auto measures = [](double error) {
    Measure measure;
    measure.relative_rms = error;
    return std::vector<NamedMeasure>{{"o", measure}, {"lse", measure}};
  };
  const auto passes = [&](double many, double one) {
    const auto checks = check_against_one_rank(measures(many), measures(one), 1.05);
    EXPECT_EQ(checks.size(), 1u);  // the LSE is FP32
    return checks.front().pass();
  };
  EXPECT_TRUE(passes(1.04e-3, 1e-3));
  EXPECT_FALSE(passes(1.06e-3, 1e-3));
  EXPECT_TRUE(passes(1e-7, 1e-9));  // rounding noise of FP32
  EXPECT_FALSE(passes(std::nan(""), 1e-3));
  EXPECT_FALSE(passes(1e-3, std::nan("")));
}

}  // namespace
}  // namespace longspan::tool
