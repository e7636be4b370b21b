// Callbacks that change scores or hide pairs: results, what is kept under their key, refusals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "testkit/groups.h"
#include "testkit/modifications.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

using ::testing::HasSubstr;

constexpr const char* kProblem =
    "dtype=f32 heads=6/2 dim=12 dim_v=7 lengths=40,1,0,23 kv_lengths=31,2,3,40 mask=bottom_right "
    "bias=1,h softcap=4 max_logit=true";

class Modifications : public testing::TestWithParam<std::string> {};

TEST_P(Modifications, AreWhatTheOracleMakesOfThem) {
  for (const char* provider : {"cpu/tiled", "cpu/reference"}) {
    Case c{.problem = kProblem, .provider = provider, .modification = GetParam()};
    const tool::Inputs inputs = inputs_of(c);
    const tool::Reference reference = reference_of(inputs);
    for (const StrategyPair& pair : all_pairs()) {
      for (const int ranks : {1, 3}) {
        c.forward = pair.forward;
        c.backward = pair.backward;
        c.ranks = ranks;
        c.nodes = ranks;
        expect_right_run(c, inputs, reference);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Names, Modifications, testing::ValuesIn(modification_names()));

/// One engine of one rank.
class Keys : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine() const {
    Options options;
    options.plans = plans_;
    return Engine::create(options, make_threads_communicators(Topology::blocks(1, 1))[0],
                          shared_device())
        .value();
  }
  /// The problem with functions of its own, as a caller makes them anew for each call.
  static Problem problem(const std::string& key) {
    Problem p = *parse_problem(kProblem);
    Modification functions = *modification_named("tilted").functions;
    functions.key = key;
    p.modification = {std::make_shared<const Modification>(std::move(functions))};
    return p;
  }
  int64_t builds() const { return statistics(*plans_).builds; }

  std::shared_ptr<PlanCache> plans_ = make_plan_cache();
};

TEST_F(Keys, EqualOnesBuildNoPlanAgain) {
  const auto first = engine();
  const auto call = first->prepare(problem("mine")).value();
  const int64_t built = builds();
  EXPECT_GT(built, 0);
  EXPECT_EQ(first->prepare(problem("mine")).value(), call);
  EXPECT_TRUE(engine()->prepare(problem("mine")).ok());
  EXPECT_EQ(builds(), built);
  EXPECT_NE(first->prepare(problem("other")).value(), call);
  EXPECT_EQ(builds(), 2 * built);
}

TEST_F(Keys, EmptyOnesArePreparedAnewEachTime) {
  const auto first = engine();
  const Problem unkeyed = problem("");
  const auto call = first->prepare(unkeyed).value();
  const int64_t built = builds();
  EXPECT_GT(built, 0);
  EXPECT_NE(first->prepare(unkeyed).value(), call);
  EXPECT_EQ(builds(), 2 * built);
  EXPECT_EQ(statistics(*plans_).size, 0) << "nothing is kept";
}

TEST_F(Keys, FunctionsAreThoseOfTheCall) {
  const auto prepared = engine();
  const auto mine = prepared->prepare(problem("mine")).value();
  EXPECT_EQ(mine->problem().modification.functions->key, "mine");
}

/// What every rank's prepare() says.
std::vector<Status> prepare_on_ranks(int ranks, const std::string& backward,
                                     const std::function<Problem(int)>& problem_of) {
  std::vector<Status> statuses(static_cast<size_t>(ranks));
  for_each_rank(make_threads_communicators(Topology::blocks(ranks, 1)),
                [&](std::shared_ptr<Communicator> communicator) {
                  const int rank = communicator->rank();
                  Options options;
                  options.backward.strategy = backward;
                  const auto engine =
                      Engine::create(options, std::move(communicator), shared_device()).value();
                  const auto call = engine->prepare(problem_of(rank));
                  if (!call.ok()) statuses[static_cast<size_t>(rank)] = call.error();
                  EXPECT_EQ(engine->counters().attend_launches, 0);
                });
  return statuses;
}

Problem without_derivative() {
  Problem p = *parse_problem(kProblem);
  Modification functions = *modification_named("bent").functions;
  functions.derivative = nullptr;
  p.modification = {std::make_shared<const Modification>(std::move(functions))};
  return p;
}

TEST(Derivative, ThatIsMissingIsRefusedBeforeAnythingRuns) {
  for (const Status& status :
       prepare_on_ranks(2, "auto", [](int) { return without_derivative(); })) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr("set Modification::derivative"));
  }
}

TEST(Derivative, IsNotNeededForForwardAlone) {
  for (const Status& status :
       prepare_on_ranks(2, "none", [](int) { return without_derivative(); })) {
    EXPECT_TRUE(status.ok()) << status.error().text();
  }
}

TEST(Derivative, WithoutAScoreIsRefused) {
  for (const Status& status : prepare_on_ranks(2, "auto", [](int) {
         Problem p = *parse_problem(kProblem);
         Modification functions = *modification_named("bent").functions;
         functions.score = nullptr;
         p.modification = {std::make_shared<const Modification>(std::move(functions))};
         return p;
       })) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Ranks, ThatDifferInTheKeyAreTold) {
  const auto problem_of = [](int rank) {
    Problem p = *parse_problem(kProblem);
    p.modification = modification_named(rank == 1 ? "mesh" : "bent");
    return p;
  };
  for (const Status& status : prepare_on_ranks(3, "auto", problem_of)) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr("ranks disagree on modification: rank 1"));
  }
}

TEST(Ranks, OfWhichOneHasNoneAreTold) {
  const auto problem_of = [](int rank) {
    Problem p = *parse_problem(kProblem);
    if (rank != 2) p.modification = modification_named("bent");
    return p;
  };
  for (const Status& status : prepare_on_ranks(3, "auto", problem_of)) {
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("ranks disagree on modification: rank 2"));
  }
}

}  // namespace
}  // namespace longspan::testkit
