// Which results agree in every bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "communicators.h"
#include "testkit/conformance.h"
#include "testkit/groups.h"
#include "testkit/mailbox.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr const char* kDTypes[] = {"f64", "f32", "f16", "bf16"};

/// Long enough for several blocks, pieces of work and waves.
std::string ragged(const char* dtype, const char* heads = "8/4") {
  return fmt::format("dtype={} heads={} dim=40 dim_v=24 lengths=210,1,0,97 mask=causal", dtype,
                     heads);
}

tool::GroupResults must_run(const Case& c, const Device& device = shared_device(), int repeat = 1) {
  auto results = run_case(c, inputs_of(c), device, repeat);
  EXPECT_TRUE(results.ok()) << (results.ok() ? "" : results.error().text());
  return results.ok() ? std::move(results).value() : tool::GroupResults{};
}

TEST(Bits, RepeatsAreEqualOnAnyStrategy) {
  for (const StrategyPair& pair : all_pairs()) {
    const Case c{.problem = ragged("f32"),
                 .ranks = 4,
                 .nodes = 2,
                 .forward = pair.forward,
                 .backward = pair.backward,
                 .partition = "zigzag"};
    EXPECT_EQ(must_run(c, shared_device(), 4).unequal_repeats, 0) << text(c);
  }
}

class AllToAll : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(AllToAll, EqualsOneRank) {
  const auto& [dtype, provider] = GetParam();
  Case c{.problem = ragged(dtype),
         .forward = "all_to_all",
         .backward = "all_to_all",
         .provider = provider};
  const tool::GroupResults alone = must_run(c);
  for (const int ranks : {2, 3, 4}) {
    for (const char* partition : {"contiguous", "zigzag", "striped", "balanced"}) {
      c.ranks = ranks;
      c.partition = partition;
      EXPECT_EQ(different_results(must_run(c), alone), "") << text(c);
    }
  }
}

TEST(Bits, SlicesOfHeadsChangeNone) {
  for (const char* backward : {"all_to_all", "head_parallel"}) {
    Case c{.problem = ragged("bf16"),
           .ranks = 2,
           .forward = backward == std::string_view("all_to_all") ? backward : "all_gather",
           .backward = backward};
    const tool::GroupResults one = must_run(c);
    for (const int slices : {2, 4}) {  // 4: too many for the heads of a rank
      c.head_slices = slices;
      EXPECT_EQ(different_results(must_run(c), one), "") << text(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AllToAll,
                         testing::Combine(testing::ValuesIn(kDTypes),
                                          testing::Values("cpu/tiled", "cpu/reference")));

class HeadParallel : public testing::TestWithParam<const char*> {
 protected:
  template <class Run>
  void expect_one_rank_on_every_split(Case c, const tool::GroupResults& alone, Run&& run) {
    for (const int ranks : {2, 3, 4}) {
      for (const char* partition : {"contiguous", "zigzag", "striped", "balanced"}) {
        c.ranks = ranks;
        c.partition = partition;
        const Result<tool::GroupResults> results = run(c);
        ASSERT_TRUE(results.ok()) << text(c) << ": " << results.error().text();
        EXPECT_EQ(different_results(*results, alone), "") << text(c);
      }
    }
  }
};

/// An all_to_all forward gives every split the same O and LSE, that of 16-bit types as accumulated.
TEST_P(HeadParallel, EqualsOneRankAfterTheSameForward) {
  const Case c{.problem = ragged(GetParam()), .forward = "all_to_all", .backward = "head_parallel"};
  const tool::Inputs inputs = inputs_of(c);
  expect_one_rank_on_every_split(
      c, must_run(c), [&](const Case& split) { return run_case(split, inputs, shared_device()); });
}

INSTANTIATE_TEST_SUITE_P(Types, HeadParallel, testing::ValuesIn(kDTypes));

/// O and LSE of one rank, handed to backward alone.
class HeadParallelAlone : public HeadParallel {};

TEST_P(HeadParallelAlone, EqualsOneRankGivenItsOAndLse) {
  const Case c{.problem = ragged(GetParam()), .backward = "head_parallel"};
  const tool::Inputs inputs = inputs_of(c);
  const tool::GroupResults alone = must_run(c);
  expect_one_rank_on_every_split(
      c, alone, [&](const Case& split) { return run_backward(split, inputs, alone); });
}

INSTANTIATE_TEST_SUITE_P(Types, HeadParallelAlone, testing::Values("f64", "f32"));

TEST(Bits, ThreadsChangeNothing) {
  for (const char* dtype : kDTypes) {
    for (const char* provider : {"cpu/tiled", "cpu/reference"}) {
      for (const int ranks : {1, 3}) {
        const Case c{.problem = ragged(dtype, "6/2"),
                     .ranks = ranks,
                     .forward = "ring",
                     .backward = "all_to_all",
                     .provider = provider};
        const tool::GroupResults one = must_run(c, cpu_device(1));
        for (const int threads : {2, 3}) {
          EXPECT_EQ(different_results(must_run(c, cpu_device(threads)), one), "")
              << threads << " threads, " << text(c);
        }
      }
    }
  }
}

Communicators composites(const Case& c) {
  const auto make_rank =
      tool::make_ranks({.name = "composite", .topology = Topology::blocks(c.ranks, c.nodes)});
  Communicators all;
  for (size_t rank = 0; rank < static_cast<size_t>(c.ranks); ++rank) {
    all.push_back((*make_rank)(rank).value());
  }
  return all;
}

TEST(Bits, CommunicatorsChangeNothing) {
  for (const StrategyPair& pair : all_pairs()) {
    const Case c{.problem = ragged("bf16", "6/3"),
                 .ranks = 4,
                 .nodes = 2,
                 .forward = pair.forward,
                 .backward = pair.backward,
                 .partition = "balanced"};
    const tool::Inputs inputs = inputs_of(c);
    const auto mailbox =
        run_group(c, inputs, make_mailbox_communicators(Topology::blocks(c.ranks, c.nodes)));
    ASSERT_TRUE(mailbox.ok()) << text(c) << ": " << mailbox.error().text();
    const tool::GroupResults threads = must_run(c);
    EXPECT_EQ(different_results(*mailbox, threads), "") << text(c);
    const auto composite = run_group(c, inputs, composites(c));
    ASSERT_TRUE(composite.ok()) << text(c) << ": " << composite.error().text();
    EXPECT_EQ(different_results(*composite, threads), "") << text(c);
  }
}

}  // namespace
}  // namespace longspan::testkit
