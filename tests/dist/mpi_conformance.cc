// The conformance cases with ranks as MPI processes: run by mpirun. Rank 0 checks whole results.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "testkit/cases.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr int kNodes = 2;

/// Made before the first test and released after the last: MPI starts once in a process.
class World : public testing::Environment {
 public:
  static std::shared_ptr<Communicator>& communicator() {
    static std::shared_ptr<Communicator> instance;
    return instance;
  }
  void SetUp() override {
    auto made = make_mpi_communicator(kNodes);
    ASSERT_TRUE(made.ok()) << made.error().text();
    communicator() = *made;
  }
  void TearDown() override { communicator().reset(); }
};

/// All problems of the table; ranks and nodes are those of the job.
std::vector<Case> cases() {
  std::vector<Case> all = strategy_cases();
  for (const auto& more : {feature_cases(), option_cases(), random_cases()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  for (Case& c : all) c.declined.reset();
  return all;
}

Result<tool::GroupResults> run(const Case& c, const tool::Inputs& inputs, int repeat = 1) {
  const auto& communicator = World::communicator();
  return tool::run_mpi({.inputs = &inputs,
                        .options = options_of(c),
                        .topology = communicator->topology(),
                        .device = shared_device(),
                        .repeat = repeat},
                       communicator);
}

bool reports() { return World::communicator()->rank() == 0; }

class MpiConformance : public testing::TestWithParam<Case> {};

TEST_P(MpiConformance, IsRight) {
  Case c = GetParam();
  c.ranks = World::communicator()->size();
  c.nodes = kNodes;
  SCOPED_TRACE(text(c));
  const tool::Inputs inputs = inputs_of(c);
  const auto results = run(c, inputs);
  ASSERT_TRUE(results.ok()) << results.error().text();
  if (reports()) expect_right(inputs, *results, reference_of(inputs));
}

INSTANTIATE_TEST_SUITE_P(All, MpiConformance, testing::ValuesIn(cases()));

class MpiBits : public testing::TestWithParam<StrategyPair> {};

TEST_P(MpiBits, EqualThoseOfThreads) {
  const Case c{.problem = "dtype=bf16 heads=8/4 dim=40 lengths=210,1,0,97 mask=causal",
               .ranks = World::communicator()->size(),
               .nodes = kNodes,
               .forward = GetParam().forward,
               .backward = GetParam().backward,
               .partition = "zigzag"};
  const tool::Inputs inputs = inputs_of(c);
  const auto results = run(c, inputs, 3);
  ASSERT_TRUE(results.ok()) << results.error().text();
  EXPECT_EQ(results->unequal_repeats, 0);
  if (!reports()) return;
  const auto threads = run_case(c, inputs, shared_device());
  ASSERT_TRUE(threads.ok()) << threads.error().text();
  EXPECT_EQ(different_results(*results, *threads), "");
}

INSTANTIATE_TEST_SUITE_P(All, MpiBits, testing::ValuesIn(all_pairs()));

}  // namespace
}  // namespace longspan::testkit

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new longspan::testkit::World);  // GoogleTest deletes it
  return RUN_ALL_TESTS();
}
