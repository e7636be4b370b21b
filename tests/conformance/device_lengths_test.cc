// Lengths that come with each call: results are those of the problem of these lengths, whatever the
// tokens behind them hold, and the same call serves any of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "testkit/groups.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

constexpr int kSeeds = 3;

/// Of causal, windowed, cross and grouped shapes, in several sequences.
const std::vector<std::string>& problems() {
  static const std::vector<std::string> all = {
      "heads=4/2 dim=8 lengths=37,5,20 mask=causal",
      "heads=6/2 dim=8 dim_v=12 lengths=40,11 kv_lengths=23,40 mask=none window=6,3",
      "heads=3/1 dim=16 lengths=30,30 padded=32,32 mask=causal layout=sbhd prefix=4,0",
      "heads=2/2 dim=8 lengths=64,9 tokens=80 mask=causal chunk=7 alibi=default bias=b,h "
      "dropout=0.2 dropout_seed=5 max_logit=true",
      "heads=4/2 dim=8 lengths=29,12 kv_lengths=17,30 mask=causal sink=learnable softcap=3",
  };
  return all;
}

class DeviceLengths : public testing::TestWithParam<StrategyPair> {
 protected:
  Case case_of(const std::string& problem, int ranks) const {
    return {.problem = problem + " device_lengths=true",
            .ranks = ranks,
            .nodes = GetParam().forward == "hybrid" && ranks % 2 == 0 ? 2 : 1,
            .forward = GetParam().forward,
            .backward = GetParam().backward};
  }
};

TEST_P(DeviceLengths, ResultsAreThoseOfTheLengths) {
  const std::vector<std::string> types = {"f64", "f32", "f16", "bf16"};
  const std::vector<std::string> partitions = {"contiguous", "zigzag", "striped", "balanced"};
  size_t draw = 0;
  for (const std::string& problem : problems()) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (uint64_t seed = 0; seed < kSeeds; ++seed, ++draw) {
        Case c = case_of(fmt::format("dtype={} {}", types[draw % 4], problem), ranks);
        c.partition = partitions[(draw / 3) % 4];
        c.provider = draw % 5 == 0 ? "cpu/reference" : "cpu/tiled";
        c.seed = seed;
        expect_conforms(c);
      }
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(DeviceLengths, OneCallServesAnyLengths) {
  const Case c = case_of("dtype=f32 heads=4/2 dim=8 lengths=33,17,8 mask=causal", 3);
  std::vector<tool::Inputs> all;
  for (const auto& [q, k] : std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>>{
           {{33, 17, 8}, {33, 17, 8}},
           {{0, 0, 0}, {0, 0, 0}},
           {{1, 0, 8}, {1, 0, 8}},
           {{0, 17, 3}, {33, 0, 8}},
           {{33, 17, 8}, {33, 17, 8}}}) {
    all.push_back(inputs_of(c, q, k));
  }
  std::vector<std::vector<Flight>> flights(static_cast<size_t>(c.ranks));
  for_each_rank(
      make_threads_communicators(Topology::blocks(c.ranks, c.nodes)),
      [&](std::shared_ptr<Communicator> communicator) {
        const int rank = communicator->rank();
        const auto engine =
            Engine::create(options_of(c), std::move(communicator), shared_device()).value();
        const auto call = engine->prepare(all[0].declared()).value();
        for (const tool::Inputs& inputs : all) {
          Flight flight = make_flight(inputs, call, rank);
          ASSERT_TRUE(forward(*engine, flight).ok());
          ASSERT_TRUE(backward(*engine, flight).ok());
          flights[static_cast<size_t>(rank)].push_back(std::move(flight));
        }
      });
  for (size_t i = 0; i < all.size(); ++i) {
    tool::GroupResults whole = tool::make_group_results(all[0].problem);
    for (int rank = 0; rank < c.ranks; ++rank) {
      Flight& flight = flights[static_cast<size_t>(rank)].at(i);
      tool::RankResults results;
      results.call = flight.call;
      static_cast<tool::ResultTensors&>(results) = std::move(flight);
      tool::gather(results, flight.call->partition(), rank, whole);
    }
    SCOPED_TRACE(all[i].problem.text());
    expect_right(all[i], whole, reference_of(all[i]));
  }
}

TEST_P(DeviceLengths, ScheduleIsThatOfTheCapacities) {
  const std::string problem = "dtype=f32 heads=4/2 dim=8 lengths=33,17,8 mask=causal";
  const Case with_device_lengths = case_of(problem, 3);
  Case exact = with_device_lengths;
  exact.problem = problem;
  const auto calls = prepare_group(with_device_lengths);
  const auto exact_calls = prepare_group(exact);
  ASSERT_TRUE(calls.ok() && exact_calls.ok());
  for (size_t rank = 0; rank < calls->size(); ++rank) {
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      EXPECT_EQ(print((*calls)[rank]->schedule(direction)),
                print((*exact_calls)[rank]->schedule(direction)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, DeviceLengths, testing::ValuesIn(all_pairs()));

TEST(DeviceLengthsDeclined, WhatNeedsLengthsThatAreKnownAhead) {
  for (const char* rest : {"mask=bottom_right", "mask=none align=bottom_right"}) {
    Case c{.problem =
               fmt::format("dtype=f32 heads=2/1 dim=4 lengths=6,9 device_lengths=true {}", rest)};
    c.declined = DeclineCode::kDeviceLengths;
    expect_conforms(c);
  }
}

TEST(WithLengths, AreCheckedAgainstTheCapacities) {
  const Problem p =
      parse_problem("dtype=f32 heads=2/1 dim=4 lengths=6,9 kv_lengths=5,4 device_lengths=true")
          .value();
  const std::vector<int32_t> q = {6, 0};
  const std::vector<int32_t> k = {0, 3};
  const auto exact = with_lengths(p, {.q = q, .k = k});
  ASSERT_TRUE(exact.ok()) << exact.error().text();
  EXPECT_EQ(exact->text(),
            "dtype=f32 heads=2/1 dim=4 lengths=6,0 mask=none kv_lengths=0,3 padded=6,9 "
            "kv_padded=5,4");
  const auto long_ones =
      parse_problem("dtype=f16 heads=1/1 dim=1 lengths=2147483648 device_lengths=true");
  ASSERT_FALSE(long_ones.ok());
  EXPECT_NE(long_ones.error().message.find("at most 2147483647"), std::string::npos);
  const std::vector<std::vector<int32_t>> wrong = {{7, 0}, {-1, 0}, {1}, {1, 1, 1}};
  for (const std::vector<int32_t>& lengths : wrong) {
    const auto refused = with_lengths(p, {.q = lengths, .k = k});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace longspan::testkit
