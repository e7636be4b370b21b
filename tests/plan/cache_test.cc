// The plan cache: what is kept, for how long, and how often a provider is asked.
#include "plan/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include "plan/fake_provider.h"
#include "plan/select.h"

namespace longspan {
namespace {

using test::declining;
using test::FakeProvider;

TileProblem problem_of(int64_t capacity, int64_t dim = 64) {
  return {.heads_q = 2,
          .heads_kv = 1,
          .group = 2,
          .dim_qk = dim,
          .dim_v = dim,
          .capacity_q = capacity,
          .capacity_k = capacity};
}

TEST(PlanCache, HitsGiveTheSamePlanPreparedForTheBucket) {
  PlanCache cache(8);
  const FakeProvider provider("a");
  const auto first = *cache.plan(provider, problem_of(700), {});
  const auto second = *cache.plan(provider, problem_of(760), {});
  EXPECT_EQ(first, second);
  EXPECT_EQ(dynamic_cast<const test::FakePlan&>(*first).problem, problem_of(768));
  EXPECT_NE(*cache.plan(provider, problem_of(769), {}), first);
  const CacheStatistics s = cache.statistics();
  EXPECT_EQ(s.hits, 1);
  EXPECT_EQ(s.builds, 2);
  EXPECT_EQ(s.declines, 0);
  EXPECT_EQ(s.evictions, 0);
  EXPECT_EQ(s.size, 2);
  EXPECT_EQ(provider.considered, 2);
  EXPECT_EQ(provider.prepared, 2);
}

TEST(PlanCache, DeclinesAreAskedForOnce) {
  PlanCache cache(8);
  const FakeProvider provider = declining("a", "dim 64 > 32");
  for (int i = 0; i < 3; ++i) {
    const auto plan = cache.plan(provider, problem_of(64), {});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(plan.error().text(), "unsupported (a): dim 64 > 32");
    const Verdict verdict = cache.consider(provider, problem_of(64), {});
    ASSERT_NE(declined(verdict), nullptr);
    EXPECT_EQ(declined(verdict)->detail, "dim 64 > 32");
  }
  EXPECT_EQ(provider.considered, 1);
  EXPECT_EQ(provider.prepared, 0);
  EXPECT_EQ(cache.statistics().declines, 1);
  EXPECT_EQ(cache.statistics().builds, 0);
}

TEST(PlanCache, RequireThenPreferProbesOnce) {
  PlanCache cache(8);
  const FakeProvider picky = declining("picky", "not this one");
  const FakeProvider reference("reference");
  const std::vector<const Provider*> all = {&picky, &reference};
  const std::vector<TileProblem> problems = {problem_of(64)};
  const auto choose = [&](RoutingMode mode) {
    return select_provider(cache, all,
                           {.problems = problems, .device = {}, .routing = {mode, "picky"}})
        .provider;
  };
  EXPECT_EQ(choose(RoutingMode::kRequire), nullptr);
  EXPECT_EQ(choose(RoutingMode::kPrefer), &reference);
  EXPECT_EQ(picky.considered, 1);
  EXPECT_EQ(reference.considered, 1);
}

TEST(PlanCache, ConsideringPreparesNothingAndPlansReuseTheVerdict) {
  PlanCache cache(8);
  const FakeProvider provider("a");
  EXPECT_EQ(declined(cache.consider(provider, problem_of(64), {})), nullptr);
  EXPECT_EQ(provider.prepared, 0);
  EXPECT_TRUE(cache.plan(provider, problem_of(64), {}).ok());
  EXPECT_EQ(provider.considered, 1);
  EXPECT_EQ(provider.prepared, 1);
}

TEST(PlanCache, FailuresAreNotKept) {
  PlanCache cache(8);
  const FakeProvider provider("a");
  provider.failures = 2;
  for (int i = 0; i < 2; ++i) {
    const auto plan = cache.plan(provider, problem_of(64), {});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().text(), "out_of_memory (a): no memory for the plan");
  }
  EXPECT_EQ(cache.statistics().builds, 0);
  EXPECT_TRUE(cache.plan(provider, problem_of(64), {}).ok());
  EXPECT_TRUE(cache.plan(provider, problem_of(64), {}).ok());
  EXPECT_EQ(provider.prepared, 3);
  EXPECT_EQ(cache.statistics().builds, 1);
  EXPECT_EQ(cache.statistics().hits, 1);
}

TEST(PlanCache, LeastRecentlyUsedEntriesLeaveAndPlansInUseLiveOn) {
  PlanCache cache(3);
  const FakeProvider provider("a");
  const auto plan = [&](int64_t dim) { return *cache.plan(provider, problem_of(64, dim), {}); };
  const auto touched = plan(1);
  const std::weak_ptr<const Plan> dropped = plan(2);
  const auto held = plan(3);
  EXPECT_EQ(plan(1), touched);
  plan(4);  // 2 leaves, though 1 is older
  EXPECT_TRUE(dropped.expired());
  EXPECT_EQ(plan(1), touched);
  plan(5);  // 3 leaves
  EXPECT_EQ(cache.statistics().size, 3);
  EXPECT_EQ(cache.statistics().evictions, 2);
  EXPECT_TRUE(held->forward({}, {}).ok()) << "evicted, but still ours";
  EXPECT_EQ(plan(1), touched);
  EXPECT_NE(plan(3), held) << "built again";
  for (int64_t dim = 10; dim < 200; ++dim) {
    plan(dim);
    ASSERT_LE(cache.statistics().size, 3);
  }
}

TEST(PlanCache, KeepsAtLeastOneEntry) {
  PlanCache cache(0);
  const FakeProvider provider("a");
  const auto first = *cache.plan(provider, problem_of(64), {});
  EXPECT_EQ(*cache.plan(provider, problem_of(64), {}), first);
  EXPECT_EQ(cache.statistics().size, 1);
  EXPECT_EQ(statistics(*make_plan_cache(0)).size, 0);
}

TEST(PlanCache, ConcurrentCallersPrepareOnce) {
  constexpr int kThreads = 8;
  PlanCache cache(8);
  FakeProvider provider("a");
  provider.on_prepare = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  std::latch start(kThreads);
  std::vector<std::shared_ptr<const Plan>> plans(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      plans[i] = *cache.plan(provider, problem_of(64), {});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& plan : plans) EXPECT_EQ(plan, plans[0]);
  EXPECT_EQ(provider.prepared, 1);
  EXPECT_EQ(provider.considered, 1);
  EXPECT_EQ(cache.statistics().builds, 1);
  EXPECT_EQ(cache.statistics().hits, kThreads - 1);
}

TEST(PlanCache, OneSlowPreparationHoldsUpNoOtherKey) {
  PlanCache cache(8);
  FakeProvider slow("slow");
  const FakeProvider quick("quick");
  std::latch inside(1);
  std::latch finish(1);
  slow.on_prepare = [&] {
    inside.count_down();
    finish.wait();
  };
  std::thread waiting([&] { EXPECT_TRUE(cache.plan(slow, problem_of(64), {}).ok()); });
  inside.wait();
  EXPECT_TRUE(cache.plan(quick, problem_of(64), {}).ok());
  EXPECT_EQ(cache.statistics().builds, 1);
  finish.count_down();
  waiting.join();
  EXPECT_EQ(cache.statistics().builds, 2);
}

TEST(PlanCache, CallbacksAreKeptUnderTheirKeyAndNotAtAllWithoutOne) {
  PlanCache cache(8);
  const FakeProvider provider("a");
  TileProblem problem = problem_of(64);
  problem.features.modification = "square";
  const auto first = *cache.plan(provider, problem, {});
  EXPECT_EQ(*cache.plan(provider, problem, {}), first);
  problem.features.modification = "cube";
  EXPECT_NE(*cache.plan(provider, problem, {}), first);
  EXPECT_EQ(cache.statistics().builds, 2);
  EXPECT_EQ(cache.statistics().size, 2);
  problem.features.modification = "";
  const auto nameless = *cache.plan(provider, problem, {});
  EXPECT_NE(*cache.plan(provider, problem, {}), nameless);
  EXPECT_EQ(cache.statistics().builds, 4);
  EXPECT_EQ(cache.statistics().size, 2);
}

TEST(PlanCache, ManyThreadsOverManyKeysStayWithinTheBound) {
  PlanCache cache(5);
  const FakeProvider provider("a");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 400; ++i) {
        const int64_t dim = 1 + (i * 7 + t * 3) % 11;
        const auto plan = cache.plan(provider, problem_of(64, dim), {});
        const bool right =
            plan.ok() && dynamic_cast<const test::FakePlan&>(**plan).problem.dim_qk == dim;
        if (!right || cache.statistics().size > 5) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  const CacheStatistics s = cache.statistics();
  EXPECT_EQ(s.hits + s.builds, 4 * 400);
  EXPECT_EQ(s.builds, provider.prepared);
}

}  // namespace
}  // namespace longspan
