// Which provider is taken: every routing mode against every kind of answer.
#include "plan/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "plan/fake_provider.h"

namespace longspan {
namespace {

using test::declining;
using test::FakeProvider;
using testing::ElementsAre;
using testing::HasSubstr;

TileProblem problem_of(int64_t dim, Direction direction = Direction::kBackward) {
  return {.direction = direction,
          .heads_q = 1,
          .heads_kv = 1,
          .dim_qk = dim,
          .dim_v = dim,
          .capacity_q = 64,
          .capacity_k = 64};
}

/// Three providers, best first: "quick" takes dims up to 128, "half" hands out 16-bit partials, and
/// "reference" takes everything.
class Select : public testing::Test {
 protected:
  ProviderChoice choose(const Routing& routing, std::vector<TileProblem> problems,
                        bool refuse_16bit = false) {
    return select_provider(cache_, all_,
                           {.problems = problems,
                            .device = {},
                            .routing = routing,
                            .refuse_16bit_partials = refuse_16bit,
                            .measured = measured_ ? &*measured_ : nullptr});
  }
  ProviderChoice choose(RoutingMode mode, std::string provider, int64_t dim, bool refuse = false) {
    return choose({mode, std::move(provider)}, {problem_of(dim)}, refuse);
  }
  static std::vector<std::string> decliners(const ProviderChoice& choice) {
    std::vector<std::string> names;
    for (const NamedDecline& decline : choice.declines) names.push_back(decline.name);
    return names;
  }

  std::optional<RoutingRow> measured_;
  PlanCache cache_{64};
  FakeProvider quick_{"quick", [](const TileProblem& p) -> Verdict {
                        if (p.dim_qk > 128) return Decline{DeclineCode::kHeadDim, "dim > 128"};
                        return Offer{"quickly"};
                      }};
  FakeProvider half_{"half", [](const TileProblem&) { return Offer{"rounded", true}; }};
  FakeProvider reference_{"reference"};
  std::vector<const Provider*> all_ = {&quick_, &half_, &reference_};
};

TEST_F(Select, AutoTakesTheBestThatOffers) {
  const ProviderChoice small = choose({}, {problem_of(64)});
  EXPECT_EQ(small.provider, &quick_);
  EXPECT_EQ(small.reason, "best that offers");
  EXPECT_TRUE(small.declines.empty());
  const ProviderChoice large = choose({}, {problem_of(256)});
  EXPECT_EQ(large.provider, &half_);
  ASSERT_EQ(large.declines.size(), 1u);
  EXPECT_EQ(large.declines[0].name, "quick");
  EXPECT_EQ(large.declines[0].direction, "backward");
  EXPECT_EQ(large.declines[0].decline.code, DeclineCode::kHeadDim);
  EXPECT_EQ(large.declines[0].decline.detail, "dim > 128");
}

TEST_F(Select, AProviderMustOfferTheProblemsOfAllRanks) {
  const ProviderChoice mixed = choose({}, {problem_of(64), problem_of(256)});
  EXPECT_EQ(mixed.provider, &half_);
  EXPECT_THAT(decliners(mixed), ElementsAre("quick"));
}

TEST_F(Select, SixteenBitPartialsAreRefusedWhereTheyMustNotBe) {
  const ProviderChoice choice = choose(RoutingMode::kAuto, "", 256, true);
  EXPECT_EQ(choice.provider, &reference_);
  ASSERT_THAT(decliners(choice), ElementsAre("quick", "half"));
  EXPECT_EQ(choice.declines[1].decline.code, DeclineCode::kPartials);
  EXPECT_THAT(choice.declines[1].decline.detail, HasSubstr("partials=16bit"));
}

TEST_F(Select, PreferTakesTheNamedOneOrRecordsWhyNot) {
  const ProviderChoice taken = choose(RoutingMode::kPrefer, "reference", 64);
  EXPECT_EQ(taken.provider, &reference_);
  EXPECT_EQ(taken.reason, "preferred");
  const ProviderChoice best = choose(RoutingMode::kPrefer, "quick", 64);
  EXPECT_EQ(best.provider, &quick_);
  EXPECT_EQ(best.reason, "preferred");
  const ProviderChoice fallen = choose(RoutingMode::kPrefer, "quick", 256);
  EXPECT_EQ(fallen.provider, &half_);
  EXPECT_EQ(fallen.reason, "best that offers; preferred quick declined: dim > 128");
  const ProviderChoice refused = choose(RoutingMode::kPrefer, "half", 256, true);
  EXPECT_EQ(refused.provider, &reference_);
  EXPECT_THAT(refused.reason, HasSubstr("preferred half declined: partials=16bit"));
}

TEST_F(Select, RequireNeverFallsBack) {
  const ProviderChoice taken = choose(RoutingMode::kRequire, "half", 64);
  EXPECT_EQ(taken.provider, &half_);
  EXPECT_EQ(taken.reason, "required");
  const ProviderChoice declined = choose(RoutingMode::kRequire, "quick", 256);
  EXPECT_EQ(declined.provider, nullptr);
  EXPECT_EQ(declined.reason, "");
  EXPECT_THAT(decliners(declined), ElementsAre("quick"));
  EXPECT_EQ(choose(RoutingMode::kRequire, "half", 64, true).provider, nullptr);
  EXPECT_EQ(choose(RoutingMode::kRequire, "nobody", 64).provider, nullptr);
}

TEST_F(Select, OffBarsTheNamedOneWithoutAskingIt) {
  const ProviderChoice choice = choose(RoutingMode::kOff, "quick", 64);
  EXPECT_EQ(choice.provider, &half_);
  EXPECT_EQ(choice.reason, "best that offers");
  ASSERT_THAT(decliners(choice), ElementsAre("quick"));
  EXPECT_EQ(choice.declines[0].decline.code, DeclineCode::kOff);
  EXPECT_EQ(choice.declines[0].decline.detail, "barred by off:quick");
  EXPECT_EQ(quick_.considered, 0);
  EXPECT_EQ(choose(RoutingMode::kOff, "reference", 64).provider, &quick_);
}

TEST_F(Select, MeasuredTimesComeBeforeTheOrder) {
  measured_.emplace().times = {{"quick", 75}, {"reference", 80}, {"half", 100}};
  const ProviderChoice fastest = choose({}, {problem_of(64)});
  EXPECT_EQ(fastest.provider, &quick_);
  EXPECT_EQ(fastest.reason, "measured table: quick 0.94 of reference");
  const ProviderChoice next = choose({}, {problem_of(256)});
  EXPECT_EQ(next.provider, &reference_);  // behind half in the order of providers
  EXPECT_EQ(next.reason, "measured table: reference 0.80 of half");
  EXPECT_EQ(choose(RoutingMode::kOff, "reference", 256).reason,
            "measured table: the only one of its row that offers");
  EXPECT_EQ(choose(RoutingMode::kRequire, "half", 64).provider, &half_);
  EXPECT_EQ(choose(RoutingMode::kPrefer, "half", 64).reason, "preferred");
  const ProviderChoice unmet = choose(RoutingMode::kPrefer, "quick", 256);
  EXPECT_EQ(unmet.provider, &reference_);
  EXPECT_EQ(unmet.reason,
            "measured table: reference 0.80 of half; preferred quick declined: dim > 128");
}

TEST_F(Select, TheOrderStandsWhereNoneThatOffersIsMeasured) {
  measured_.emplace().times = {{"another", 1}, {"quick", 2}};
  const ProviderChoice choice = choose({}, {problem_of(256)});
  EXPECT_EQ(choice.provider, &half_);
  EXPECT_EQ(choice.reason, "best that offers");
}

TEST_F(Select, NobodyOffers) {
  const FakeProvider no = declining("no", "never");
  const FakeProvider never = declining("never", "not ever");
  const std::vector<const Provider*> all = {&no, &never};
  const std::vector<TileProblem> problems = {problem_of(64, Direction::kForward)};
  for (const RoutingMode mode :
       {RoutingMode::kAuto, RoutingMode::kPrefer, RoutingMode::kRequire, RoutingMode::kOff}) {
    const ProviderChoice choice =
        select_provider(cache_, all, {.problems = problems, .device = {}, .routing = {mode, "no"}});
    EXPECT_EQ(choice.provider, nullptr);
    EXPECT_THAT(decliners(choice), ElementsAre("no", "never"));
    EXPECT_EQ(choice.declines[1].direction, "forward");
  }
}

TEST_F(Select, AsksOncePerProblemHoweverOftenItChooses) {
  for (int i = 0; i < 5; ++i) {
    choose({}, {problem_of(64), problem_of(64)});
    choose(RoutingMode::kPrefer, "half", 64);
  }
  EXPECT_EQ(quick_.considered, 1);
  EXPECT_EQ(half_.considered, 1);
  EXPECT_EQ(reference_.considered, 1);
  EXPECT_EQ(quick_.prepared, 0);
}

}  // namespace
}  // namespace longspan
