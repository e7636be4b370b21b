// What strategies send: the closed forms for dense problems, and nothing for tiles that are empty.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "longspan/schedule.h"
#include "strategies/build.h"

namespace longspan {
namespace {

using test::schedules_of;
using test::setting_of;

/// One dense sequence over P ranks, and the bytes per token of each tensor: q (and o), k with v,
/// one FP32 statistic, and k with v in FP32.
struct Dense {
  int64_t ranks;
  int64_t heads_q = 16;
  int64_t heads_kv = 8;
  int64_t dim = 64;
  int64_t local = 32;
  const char* mask = "none";

  int64_t q() const { return heads_q * dim * 2; }
  int64_t kv() const { return 2 * heads_kv * dim * 2; }
  int64_t statistic() const { return heads_q * 4; }
  int64_t kv32() const { return 2 * heads_kv * dim * 4; }

  Setting setting(const std::string& forward, const std::string& backward,
                  PartitionKind partition = PartitionKind::kContiguous, int nodes = 1) const {
    return setting_of(fmt::format("dtype=bf16 heads={}/{} dim={} lengths={} mask={}", heads_q,
                                  heads_kv, dim, local * ranks, mask),
                      {forward, backward, partition, static_cast<int>(ranks), nodes});
  }
};

void expect_each_sends(const Setting& setting, Direction direction, int64_t bytes) {
  for (const Schedule& schedule : schedules_of(setting, direction)) {
    EXPECT_EQ(schedule.bytes_sent(), bytes)
        << schedule.strategy << " " << name(direction) << " rank " << schedule.rank;
  }
}

TEST(Bytes, RingAndAllGatherSendKeysAndValuesToEveryOtherRank) {
  for (const int64_t ranks : {2, 4, 8}) {
    const Dense d{.ranks = ranks};
    const int64_t once = (ranks - 1) * d.local * d.kv();
    for (const char* strategy : {"ring", "all_gather"}) {
      const Setting setting = d.setting(strategy, strategy);
      expect_each_sends(setting, Direction::kForward, once);
      // dk and dv go home in FP32.
      expect_each_sends(setting, Direction::kBackward, once + (ranks - 1) * d.local * d.kv32());
    }
  }
}

TEST(Bytes, AllToAllSendsEachHeadShareOnce) {
  for (const int64_t p : {2, 4, 8}) {
    const Dense d{.ranks = p};
    const Setting setting = d.setting("all_to_all", "all_to_all");
    const auto share = [&](int64_t bytes) { return (p - 1) * d.local * bytes / p; };
    // In q, k, v; out o and LSE.
    expect_each_sends(setting, Direction::kForward, share(2 * d.q() + d.kv() + d.statistic()));
    // In dout; out dq, dk, dv. q, k, v, O and LSE were kept in head layout.
    expect_each_sends(setting, Direction::kBackward, share(2 * d.q() + d.kv()));
  }
}

TEST(Bytes, HeadParallelSendsDeltaInsteadOfO) {
  for (const int64_t p : {2, 4, 8}) {
    const Dense d{.ranks = p};
    const int64_t bytes = 3 * d.q() + 2 * d.kv() + 2 * d.statistic();
    for (const char* forward : {"ring", "all_gather", "all_to_all"}) {
      expect_each_sends(d.setting(forward, "head_parallel"), Direction::kBackward,
                        (p - 1) * d.local * bytes / p);
    }
  }
}

TEST(Bytes, HybridSendsKeysAndValuesOncePerNode) {
  for (const auto& [ranks, nodes] : {std::pair{4, 2}, {8, 2}, {8, 4}}) {
    const Dense d{.ranks = ranks};
    const int64_t ways = ranks / nodes;
    const Setting setting = d.setting("hybrid", "hybrid", PartitionKind::kContiguous, nodes);
    const int64_t inside = (ways - 1) * d.local * (2 * d.q() + d.kv()) / ways;
    const int64_t statistics = (ways - 1) * d.local * d.statistic() / ways;
    expect_each_sends(setting, Direction::kForward,
                      inside + statistics + (nodes - 1) * d.local * d.kv());
    expect_each_sends(setting, Direction::kBackward,
                      inside + (nodes - 1) * d.local * (d.kv() + d.kv32()));
  }
}

TEST(Bytes, SharedKeyHeadsTravelToEveryRankThatSharesThem) {
  // Two key heads over four ranks: each rank needs one of them, and its dk and dv go home in FP32.
  const Dense d{.ranks = 4, .heads_q = 8, .heads_kv = 2};
  const Setting setting = d.setting("all_to_all", "all_to_all");
  const int64_t queries = 3 * d.local * 2 * d.q() / 4;
  const int64_t statistics = 3 * d.local * d.statistic() / 4;
  expect_each_sends(setting, Direction::kForward, queries + statistics + 3 * d.local * d.kv() / 2);
  expect_each_sends(setting, Direction::kBackward, queries + 3 * d.local * d.kv32() / 2);
}

int64_t sum_of_bytes(const Setting& setting, Direction direction) {
  int64_t bytes = 0;
  for (const Schedule& s : schedules_of(setting, direction)) bytes += s.bytes_sent();
  return bytes;
}

TEST(Bytes, CausalContiguousSendsToLaterRanksAlone) {
  for (const char* strategy : {"ring", "all_gather"}) {
    const Dense d{.ranks = 6, .mask = "causal"};
    const Setting setting = d.setting(strategy, strategy);
    for (const Schedule& schedule : schedules_of(setting, Direction::kForward)) {
      std::set<int> from, to;
      for (const Step& step : schedule.steps) {
        for (const Message& m : step.messages) {
          (m.kind == TransferKind::kRecv ? from : to).insert(m.peer);
        }
      }
      std::set<int> earlier, later;
      for (int rank = 0; rank < 6; ++rank) {
        if (rank < schedule.rank) earlier.insert(rank);
        if (rank > schedule.rank) later.insert(rank);
      }
      EXPECT_EQ(from, earlier) << strategy << " rank " << schedule.rank;
      EXPECT_EQ(to, later) << strategy << " rank " << schedule.rank;
      EXPECT_EQ(schedule.bytes_sent(), (5 - schedule.rank) * d.local * d.kv());
      EXPECT_EQ(schedule.tile_count(), schedule.rank + 1)
          << "the diagonal and what lies left of it";
    }
    EXPECT_EQ(sum_of_bytes(setting, Direction::kBackward), 15 * d.local * (d.kv() + d.kv32()));
  }
}

TEST(Bytes, CausalZigzagSendsThreeQuarters) {
  const Dense d{.ranks = 8, .mask = "causal"};
  for (const char* strategy : {"ring", "all_gather"}) {
    const Setting setting = d.setting(strategy, strategy, PartitionKind::kZigzag);
    EXPECT_EQ(sum_of_bytes(setting, Direction::kForward), 8 * 7 * d.local * d.kv() * 3 / 4);
    EXPECT_EQ(sum_of_bytes(setting, Direction::kBackward),
              8 * 7 * d.local * (d.kv() + d.kv32()) * 3 / 4);
  }
}

TEST(Bytes, DocumentsOfDifferentRanksCostNothing) {
  const Setting setting = setting_of("dtype=bf16 heads=4/2 dim=32 lengths=64,64,64,64 mask=causal",
                                     {"ring", "ring", PartitionKind::kBalanced, 4, 1});
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    for (const Schedule& schedule : schedules_of(setting, direction)) {
      EXPECT_EQ(schedule.bytes_sent(), 0);
      EXPECT_EQ(schedule.tile_count(), 1);
      const auto attends = std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                         [](const Step& s) { return !s.parts.empty(); });
      const auto transfers = std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                           [](const Step& s) { return s.lane == Lane::kTransfer; });
      EXPECT_EQ(attends, 1) << "one launch";
      EXPECT_EQ(transfers, 0) << "no message";
    }
  }
}

TEST(Bytes, OneRankSendsNothing) {
  for (const char* strategy : {"ring", "all_gather", "all_to_all", "hybrid"}) {
    const Setting setting = Dense{.ranks = 1}.setting(strategy, strategy);
    expect_each_sends(setting, Direction::kForward, 0);
    expect_each_sends(setting, Direction::kBackward, 0);
  }
}

/// Where the messages of one kind and tag begin, and how far they reach.
std::pair<int64_t, int64_t> span_of(const Schedule& schedule, TransferKind kind, uint32_t tag) {
  int64_t begin = schedule.workspace_bytes;
  int64_t end = 0;
  for (const Step& step : schedule.steps) {
    for (const Message& m : step.messages) {
      if (m.kind != kind || m.tag != tag) continue;
      begin = std::min(begin, m.offset);
      end = std::max(end, m.offset + m.bytes);
    }
  }
  return {begin, end};
}

TEST(Memory, HeadParallelReusesItsExchangeBuffersOnTheWayBack) {
  const Dense d{.ranks = 4};
  for (const Schedule& schedule :
       schedules_of(d.setting("ring", "head_parallel"), Direction::kBackward)) {
    for (const TransferKind kind : {TransferKind::kSend, TransferKind::kRecv}) {
      const auto [there, there_end] = span_of(schedule, kind, 1);
      const auto [back, back_end] = span_of(schedule, kind, 2);
      EXPECT_EQ(there, back);
      EXPECT_LT(back_end, there_end) << "what comes back is less";
    }
  }
}

TEST(Memory, RingNeedsTwoSlotsHoweverManyRanks) {
  const auto workspace = [](int64_t ranks) {
    const Dense d{.ranks = ranks};
    return schedules_of(d.setting("ring", "ring"), Direction::kForward)[0].workspace_bytes;
  };
  EXPECT_EQ(workspace(4), workspace(8));
  EXPECT_EQ(workspace(8), workspace(16));
}

TEST(Memory, AllGatherGrowsWithTheSequence) {
  const Dense small{.ranks = 4};
  const Dense large{.ranks = 8};
  const auto workspace = [](const Dense& d) {
    return schedules_of(d.setting("all_gather", "all_gather"), Direction::kForward)[0]
        .workspace_bytes;
  };
  // Four more ranks' keys and values in, and as much packed for them.
  EXPECT_EQ(workspace(large) - workspace(small), 2 * 4 * large.local * large.kv());
}

}  // namespace
}  // namespace longspan
