// Bytes that are predicted are bytes that are sent, and a window's ring moves its halo alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "testkit/counting.h"
#include "testkit/flight.h"
#include "testkit/groups.h"
#include "testkit/options.h"
#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

/// What one rank sent in each direction, and what its schedules say.
struct Sent {
  int64_t counted[2] = {-1, -1};
  int64_t predicted[2] = {0, 0};
  int64_t reported[2] = {0, 0};
};

Status run_rank(const Case& c, const tool::Inputs& inputs,
                const std::shared_ptr<CountingCommunicator>& communicator, Sent& sent) {
  LONGSPAN_TRY(const auto engine, Engine::create(options_of(c), communicator, shared_device()));
  LONGSPAN_TRY(const auto call, engine->prepare(inputs.problem));
  Flight flight = make_flight(inputs, call, communicator->rank());
  communicator->take_bytes();  // agreement
  LONGSPAN_CHECK_OK(forward(*engine, flight));
  sent.counted[0] = communicator->take_bytes();
  LONGSPAN_CHECK_OK(backward(*engine, flight));
  sent.counted[1] = communicator->take_bytes();
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    sent.predicted[static_cast<int>(direction)] = call->schedule(direction).bytes_sent();
  }
  sent.reported[0] = engine->counters().bytes_sent_forward;
  sent.reported[1] = engine->counters().bytes_sent_backward;
  return {};
}

std::vector<Sent> sent_by_ranks(const Case& c) {
  SCOPED_TRACE(text(c));
  const tool::Inputs inputs = inputs_of(c);
  std::vector<Sent> ranks(static_cast<size_t>(c.ranks));
  std::vector<Status> statuses(ranks.size());
  for_each_rank(make_threads_communicators(Topology::blocks(c.ranks, c.nodes)),
                [&](std::shared_ptr<Communicator> communicator) {
                  const auto rank = static_cast<size_t>(communicator->rank());
                  statuses[rank] = run_rank(
                      c, inputs, std::make_shared<CountingCommunicator>(std::move(communicator)),
                      ranks[rank]);
                });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.error().text();
  return ranks;
}

class Bytes : public testing::TestWithParam<StrategyPair> {
 protected:
  void expect_exact(Case c) const {
    c.forward = GetParam().forward;
    c.backward = GetParam().backward;
    for (c.ranks = 1; c.ranks <= 8; ++c.ranks) {
      c.nodes = c.ranks % 2 == 0 ? 2 : 1;
      SCOPED_TRACE(text(c));
      const std::vector<Sent> ranks = sent_by_ranks(c);
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        for (const int direction : {0, 1}) {
          EXPECT_EQ(ranks[rank].counted[direction], ranks[rank].predicted[direction])
              << "rank " << rank << " direction " << direction;
          EXPECT_EQ(ranks[rank].reported[direction], ranks[rank].predicted[direction])
              << "rank " << rank << " direction " << direction;
        }
      }
    }
  }
};

constexpr const char* kProblems[] = {
    "dtype=bf16 heads=6/2 dim=24 dim_v=8 lengths=61,0,22 mask=causal",
    "dtype=f32 heads=6/3 dim=7 lengths=13,30 kv_lengths=40,9 mask=bottom_right",
};

TEST_P(Bytes, SentAreThoseOfTheSchedule) {
  for (const char* problem : kProblems) {
    for (const char* partition : {"contiguous", "zigzag", "striped", "balanced"}) {
      expect_exact({.problem = problem, .partition = partition});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Bytes, testing::ValuesIn(all_pairs()));

class BytesOfOptions : public Bytes {};

TEST_P(BytesOfOptions, SentAreThoseOfTheSchedule) {
  for (const Option& option : options()) {
    expect_exact(with_option({.problem = kProblems[0], .partition = "zigzag"}, option));
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, BytesOfOptions, testing::ValuesIn(diagonal_pairs()));

constexpr int64_t kLength = 512;
constexpr int64_t kDim = 256;
constexpr int64_t kKeyHeads = 2;

/// Contiguous tokens of a rank.
Interval tokens_of(int rank, int ranks) {
  return {kLength * rank / ranks, kLength * (rank + 1) / ranks, 1};
}

/// Keys of rank `of` that queries of rank `by` see in the window (w, 0), where they are two.
int64_t seen_rows(int of, int by, int ranks, int64_t window) {
  const Interval queries = tokens_of(by, ranks);
  const Interval keys = tokens_of(of, ranks);
  if (of == by) return 0;
  const int64_t first = std::max(queries.begin - window, keys.begin);
  return std::max<int64_t>(0, std::min(queries.begin, keys.end) - first);
}

struct HaloRows {
  int64_t sent = 0;
  int64_t received = 0;
};

HaloRows halo_of(int rank, int ranks, int64_t window) {
  HaloRows rows;
  for (int other = 0; other < ranks; ++other) {
    rows.sent += seen_rows(rank, other, ranks, window);
    rows.received += seen_rows(other, rank, ranks, window);
  }
  return rows;
}

class Halo : public testing::TestWithParam<int64_t> {};

/// The window (w, 0) on contiguous ranks: results as anywhere, bytes those of the halo. Backward
/// fetches it again and sends its gradients home in FP32.
TEST_P(Halo, OfAWindowIsAllThatARingSends) {
  const int64_t window = GetParam();
  Case c{.problem = fmt::format("dtype=bf16 heads=4/{} dim={} lengths={} mask=none window={},0",
                                kKeyHeads, kDim, kLength, window)};
  const tool::Inputs inputs = inputs_of(c);
  const tool::Reference reference = reference_of(inputs);
  constexpr int64_t kRow = kKeyHeads * (kDim + kDim);
  constexpr int64_t kElement = 2;
  constexpr int64_t kAccumulator = 4;
  for (c.ranks = 1; c.ranks <= 4; ++c.ranks) {
    for (const char* strategy : {"ring", "all_gather", "all_to_all"}) {
      c.forward = strategy;
      c.backward = strategy;
      expect_right_run(c, inputs, reference);
      if (c.forward == "all_to_all") continue;
      const std::vector<Sent> sent = sent_by_ranks(c);
      for (int rank = 0; rank < c.ranks; ++rank) {
        const HaloRows rows = halo_of(rank, c.ranks, window);
        const Sent& bytes = sent[static_cast<size_t>(rank)];
        EXPECT_EQ(bytes.counted[0], rows.sent * kRow * kElement) << rank << " of " << text(c);
        EXPECT_EQ(bytes.counted[1],
                  rows.sent * kRow * kElement + rows.received * kRow * kAccumulator)
            << rank << " of " << text(c);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, Halo, testing::Values(1, 7, 128, 512));

}  // namespace
}  // namespace longspan::testkit
