// Ragged batches share plans: as many as buckets, not as packings.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "longspan/schedule.h"
#include "plan/cache.h"
#include "plan/fake_provider.h"

namespace longspan {
namespace {

Setting setting_of(const std::string& text, int ranks) {
  Problem problem = *parse_problem(text);
  Partition partition = *Partition::make(problem, PartitionKind::kBalanced, ranks);
  return {std::move(problem), std::move(partition), Topology::blocks(ranks, 1), "all_to_all",
          "all_to_all"};
}

Schedule built(const Setting& setting, Direction direction, int rank) {
  const Strategy& strategy = **find_strategy("all_to_all");
  Result<Schedule> schedule = strategy.build(setting, direction, rank);
  if (!schedule.ok()) throw std::logic_error(schedule.error().text());
  return std::move(schedule).value();
}

TEST(Packings, AThousandBuildNoMorePlansThanBuckets) {
  constexpr int64_t kTokens = 8192;
  std::set<int64_t> buckets;
  for (int64_t n = 0; n <= kTokens; ++n) buckets.insert(bucket(n));
  std::mt19937_64 random(41);
  PlanCache cache(256);
  const test::FakeProvider provider("a");
  for (int i = 0; i < 1000; ++i) {
    std::vector<int64_t> lengths;
    int64_t total = static_cast<int64_t>(random() % kTokens);
    while (total > 0 || lengths.empty()) {
      lengths.push_back(static_cast<int64_t>(random() % 1024) % (total + 1));
      total -= std::max<int64_t>(1, lengths.back());
    }
    const Setting setting = setting_of(
        fmt::format("dtype=f32 heads=4/2 dim=16 mask=causal lengths={}", fmt::join(lengths, ",")),
        2);
    for (int rank = 0; rank < 2; ++rank) {
      const Schedule schedule = built(setting, Direction::kForward, rank);
      ASSERT_TRUE(cache.plan(provider, schedule.tiles, {}).ok());
    }
  }
  const CacheStatistics s = cache.statistics();
  EXPECT_LE(s.builds, static_cast<int64_t>(buckets.size()));
  EXPECT_GT(s.builds, 3);
  EXPECT_EQ(s.hits + s.builds, 2000);
  EXPECT_EQ(s.evictions, 0);
}

TEST(Packings, RunTimeValuesAreInNoKey) {
  const std::string text = "dtype=f32 heads=4/2 dim=16 lengths=100,30 mask=causal";
  const test::FakeProvider provider("a");
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    for (const int rank : {0, 1}) {
      const Schedule one = built(setting_of(text, 2), direction, rank);
      const Schedule two = built(setting_of(text + " scale=3.5", 2), direction, rank);
      EXPECT_EQ(plan_key(provider, one.tiles, {}), plan_key(provider, two.tiles, {}));
    }
  }
}

}  // namespace
}  // namespace longspan
