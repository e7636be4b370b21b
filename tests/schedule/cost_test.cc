// Times of small schedules against the times worked out by hand.
#include <gtest/gtest.h>

#include <string>

#include "longspan/schedule.h"
#include "strategies/build.h"

namespace longspan::test {
namespace {

// A FLOP, a byte and a launch of simple sizes.
constexpr Rates kRates{.forward_flops = 100,
                       .backward_flops = 50,
                       .memory_bytes = 10,
                       .node_bytes = 4,
                       .network_bytes = 2,
                       .node_latency = 1,
                       .network_latency = 3,
                       .launch_seconds = 0.5};

Buffer rows(std::string name, int64_t count, int64_t offset) {
  return {.name = std::move(name),
          .dtype = DType::kF32,
          .rows = count,
          .heads = 1,
          .dim = 1,
          .offset = offset,
          .runs = {{.tokens = {0, count}, .valid = count}}};
}

Step transfer(TransferKind kind, int peer, BufferId buffer, int64_t offset) {
  return {.kind = StepKind::kSendRecv,
          .lane = Lane::kTransfer,
          .messages = {
              {.kind = kind, .peer = peer, .offset = offset, .bytes = 16, .buffers = {buffer}}}};
}

/// Attends one 5 x 5 tile: 25 pairs of 2 (1 + 1) FLOPs, so 1 second.
Step attend(StepId arrival) {
  const PlacedTile tile{.tile = {.q = {0, 5}, .k = {0, 5}}};
  return {.kind = StepKind::kAttend, .parts = {{.after = arrival, .tiles = {tile}}}};
}

/// Rank 0 packs (two copies of 4 rows, 64 bytes: 6.4 s and the launch) before it sends; rank 1
/// waits for the message with its second tile.
std::vector<Schedule> late_sender() {
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& schedule = schedules[static_cast<size_t>(rank)];
    schedule.rank = rank;
    schedule.ranks = 2;
    schedule.strategy = "by_hand";
    schedule.tiles = {.heads_q = 1, .heads_kv = 1, .dim_qk = 1, .dim_v = 1};
    schedule.buffers = {rows("a", 4, 0), rows("b", 4, 16)};
    schedule.workspace_bytes = 64;
  }
  const Copy copy{.src = 0, .dst = 1, .rows = 4, .heads = 1};
  schedules[0].steps = {{.kind = StepKind::kPack, .copies = {copy, copy}},
                        transfer(TransferKind::kSend, 1, 1, 16),
                        attend(kNone)};
  schedules[0].steps[1].after = {0};
  schedules[1].steps = {transfer(TransferKind::kRecv, 0, 0, 0), attend(kNone), attend(0)};
  return schedules;
}

TEST(Cost, TransferBeginsWhenBothSidesPosted) {
  const std::vector<Schedule> schedules = late_sender();
  const std::vector<Cost> costs = cost(schedules, Topology::blocks(2, 1), kRates);
  ASSERT_EQ(costs.size(), 2u);
  // Pack until 6.9, message 1 + 16 / 4 seconds until 11.9, both ranks' tiles take 0.5 + 1.
  EXPECT_DOUBLE_EQ(costs[0].spans[0].end, 6.9);
  EXPECT_DOUBLE_EQ(costs[0].spans[1].begin, 6.9);
  EXPECT_DOUBLE_EQ(costs[0].spans[1].end, 11.9);
  EXPECT_DOUBLE_EQ(costs[0].spans[2].end, 8.4);
  EXPECT_DOUBLE_EQ(costs[1].spans[1].end, 1.5);
  EXPECT_DOUBLE_EQ(costs[1].spans[2].begin, 11.9);
  EXPECT_DOUBLE_EQ(costs[1].seconds, 13.4);
  EXPECT_DOUBLE_EQ(costs[0].seconds, 11.9);
  EXPECT_DOUBLE_EQ(costs[1].compute_seconds, 3);
  EXPECT_DOUBLE_EQ(costs[1].transfer_seconds, 5);
  EXPECT_EQ(costs[0].bytes_sent, 16);
  EXPECT_EQ(costs[1].bytes_sent, 0);
  EXPECT_DOUBLE_EQ(costs[1].flops, 200);
  EXPECT_EQ(costs[0].peak_bytes, 64);
}

TEST(Cost, NetworkBetweenNodes) {
  const std::vector<Cost> costs = cost(late_sender(), Topology::blocks(2, 2), kRates);
  EXPECT_DOUBLE_EQ(costs[0].spans[1].end, 6.9 + 3 + 8);
}

TEST(Cost, OneMessageAtATimePerDirection) {
  // Rank 0 sends to 1 and 2 at once: the second waits for the first.
  std::vector<Schedule> schedules(3);
  for (int rank = 0; rank < 3; ++rank) {
    schedules[static_cast<size_t>(rank)] = late_sender()[0];
    schedules[static_cast<size_t>(rank)].rank = rank;
    schedules[static_cast<size_t>(rank)].ranks = 3;
    schedules[static_cast<size_t>(rank)].steps = {transfer(TransferKind::kRecv, 0, 0, 0)};
  }
  schedules[0].steps = {transfer(TransferKind::kSend, 1, 0, 0),
                        transfer(TransferKind::kSend, 2, 0, 0)};
  const std::vector<Cost> costs = cost(schedules, Topology::blocks(3, 1), kRates);
  EXPECT_DOUBLE_EQ(costs[1].seconds, 5);
  EXPECT_DOUBLE_EQ(costs[2].seconds, 10);
  EXPECT_DOUBLE_EQ(costs[0].transfer_seconds, 10);
  EXPECT_DOUBLE_EQ(cost(schedules[0], Topology::blocks(3, 1), kRates).seconds, 10);
}

TEST(Cost, UnmatchedMessagesEndTheSimulation) {
  std::vector<Schedule> schedules = late_sender();
  schedules[0].steps.clear();
  const std::vector<Cost> costs = cost(schedules, Topology::blocks(2, 1), kRates);
  EXPECT_DOUBLE_EQ(costs[1].seconds, 1.5);  // the last tile never starts
}

TEST(Cost, AloneIsCloseToTogetherOnSymmetricRanks) {
  // No mask and equal shares: all ranks are alike, so the assumption of the one-rank form holds but
  // for messages of different steps that meet at one rank.
  const Setting setting =
      setting_of("dtype=bf16 heads=8/2 dim=64 lengths=8192 mask=none", {.ranks = 8});
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const std::vector<Schedule> schedules = schedules_of(setting, direction);
    const std::vector<Cost> together = cost(schedules, setting.topology, Rates{});
    for (size_t rank = 0; rank < schedules.size(); ++rank) {
      const Cost alone = cost(schedules[rank], setting.topology, Rates{});
      EXPECT_LE(alone.seconds, 1.0001 * together[rank].seconds);
      EXPECT_GE(alone.seconds, 0.95 * together[rank].seconds);
      EXPECT_DOUBLE_EQ(alone.transfer_seconds, together[rank].transfer_seconds);
      EXPECT_EQ(alone.flops, together[rank].flops);
    }
  }
}

TEST(Cost, AloneReceivesWhenItsPeerWouldSend) {
  // The recv is listed first, but its sender packs as long as this rank does.
  std::vector<Schedule> schedules = late_sender();
  for (Schedule& schedule : schedules) {
    const int peer = 1 - schedule.rank;
    const Copy copy{.src = 0, .dst = 1, .rows = 4, .heads = 1};
    schedule.steps = {transfer(TransferKind::kRecv, peer, 0, 0),
                      {.kind = StepKind::kPack, .copies = {copy, copy}},
                      transfer(TransferKind::kSend, peer, 1, 16),
                      attend(0)};
    schedule.steps[2].after = {1};
  }
  const Topology topology = Topology::blocks(2, 1);
  EXPECT_DOUBLE_EQ(cost(schedules, topology, kRates)[0].seconds, 13.4);
  EXPECT_DOUBLE_EQ(cost(schedules[0], topology, kRates).seconds, 13.4);
}

TEST(Cost, FlopsOfAllRanksAreThoseOfTheProblem) {
  const Setting setting =
      setting_of("dtype=f32 heads=6/3 dim=24 lengths=100,0,37 mask=causal dim_v=8",
                 {.forward = "all_to_all",
                  .backward = "hybrid",
                  .partition = PartitionKind::kZigzag,
                  .ranks = 4,
                  .nodes = 2});
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    double sum = 0;
    for (const Schedule& schedule : schedules_of(setting, direction)) sum += schedule.flops();
    EXPECT_DOUBLE_EQ(sum, setting.problem.flops(direction));
  }
}

TEST(Rates, DefaultsStayWhereJsonSaysNothing) {
  const Result<Rates> rates = rates_from_json(R"({"node_bytes": 450e9, "launch_seconds": 0})");
  ASSERT_TRUE(rates.ok());
  EXPECT_EQ(rates->node_bytes, 450e9);
  EXPECT_EQ(rates->launch_seconds, 0);
  EXPECT_EQ(rates->forward_flops, Rates{}.forward_flops);
}

TEST(Rates, BadJsonIsNamed) {
  const auto message = [](std::string_view json) {
    const Result<Rates> rates = rates_from_json(json);
    EXPECT_FALSE(rates.ok()) << json;
    if (rates.ok()) return std::string();
    EXPECT_EQ(rates.error().code, ErrorCode::kInvalidArgument);
    return rates.error().message;
  };
  EXPECT_NE(message("{\"node_bytes\": 1").find("are not JSON; expected"), std::string::npos);
  EXPECT_NE(message("[1]").find("object"), std::string::npos);
  EXPECT_NE(message("{\"speed\": 1}").find("unknown \"speed\"; one of forward_flops"),
            std::string::npos);
  EXPECT_NE(message("{\"node_bytes\": 0}").find("above 0"), std::string::npos);
  EXPECT_NE(message("{\"node_latency\": -1}").find("at least 0"), std::string::npos);
  EXPECT_NE(message("{\"node_bytes\": \"fast\"}").find("must be a number"), std::string::npos);
}

}  // namespace
}  // namespace longspan::test
