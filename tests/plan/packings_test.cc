// Ragged batches share plans: as many as buckets, not as packings.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "longspan/schedule.h"
#include "plan/cache.h"
#include "plan/fake_provider.h"

namespace longspan {
namespace {

Setting setting_of(const std::string& text, int ranks, const std::string& strategy = "all_to_all") {
  Problem problem = *parse_problem(text);
  Partition partition = *Partition::make(problem, PartitionKind::kBalanced, ranks);
  return {std::move(problem), std::move(partition), Topology::blocks(ranks, 1), strategy, strategy};
}

Schedule built(const Setting& setting, Direction direction, int rank) {
  const Strategy& strategy = **find_strategy(setting.forward);
  Result<Schedule> schedule = strategy.build(setting, direction, rank);
  if (!schedule.ok()) throw std::logic_error(schedule.error().text());
  return std::move(schedule).value();
}

std::vector<int64_t> random_lengths(std::mt19937_64& random, size_t count) {
  constexpr int64_t kTokens = 8192;
  std::vector<int64_t> lengths;
  int64_t total = static_cast<int64_t>(random() % kTokens);
  while (count > 0 ? lengths.size() < count : (total > 0 || lengths.empty())) {
    lengths.push_back(static_cast<int64_t>(random() % 1024) % (total + 1));
    total -= std::min(total, std::max<int64_t>(1, lengths.back()));
  }
  return lengths;
}

/// Bounds of queries and keys are independent: what may differ between plans is their buckets.
using Buckets = std::pair<int64_t, int64_t>;

TEST(Packings, AThousandBuildAsManyPlansAsBuckets) {
  for (const char* strategy : {"ring", "all_gather", "all_to_all"}) {
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      std::mt19937_64 random(41);
      PlanCache cache(1024);
      const test::FakeProvider provider("a");
      std::set<Buckets> buckets;
      int64_t asked = 0;
      for (int i = 0; i < 1000; ++i) {
        const std::vector<int64_t> q = random_lengths(random, 0);
        const std::vector<int64_t> k = random_lengths(random, q.size());
        const Setting setting =
            setting_of(fmt::format("dtype=f32 heads=4/2 dim=16 mask=causal window=500,0 lengths={} "
                                   "kv_lengths={}",
                                   fmt::join(q, ","), fmt::join(k, ",")),
                       2, strategy);
        for (int rank = 0; rank < 2; ++rank) {
          const TileProblem tiles = built(setting, direction, rank).tiles;
          ASSERT_TRUE(cache.plan(provider, tiles, {}).ok());
          buckets.emplace(bucket(tiles.capacity_q), bucket(tiles.capacity_k));
          ++asked;
        }
      }
      const CacheStatistics s = cache.statistics();
      EXPECT_EQ(s.builds, static_cast<int64_t>(buckets.size())) << strategy;
      EXPECT_LT(s.builds, 200) << strategy;
      EXPECT_EQ(s.hits + s.builds, asked);
      EXPECT_EQ(s.evictions, 0);
    }
  }
}

TEST(Packings, RunTimeValuesAreInNoKey) {
  const std::string text =
      "dtype=f32 heads=4/2 dim=16 lengths=100,30 mask=causal softcap=30 dropout=0.1";
  const test::FakeProvider provider("a");
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    for (const int rank : {0, 1}) {
      const Schedule one = built(setting_of(text, 2), direction, rank);
      const Schedule two = built(
          setting_of("dtype=f32 heads=4/2 dim=16 lengths=100,30 mask=causal softcap=9 dropout=0.3 "
                     "dropout_seed=5 scale=3.5",
                     2),
          direction, rank);
      EXPECT_EQ(plan_key(provider, one.tiles, {}), plan_key(provider, two.tiles, {}));
    }
  }
}

}  // namespace
}  // namespace longspan
