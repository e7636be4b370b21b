// Plan keys: buckets, equality, hashes, and what is no part of them.
#include "plan/key.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>
#include <unordered_set>

#include "plan/fake_provider.h"

namespace longspan {
namespace {

TEST(Bucket, IsTheSmallestStepThatHolds) {
  std::set<int64_t> steps;
  for (int64_t size = 64; size <= int64_t{1} << 40; size *= 2) {
    steps.insert(size);
    steps.insert(size / 2 * 3);
  }
  for (int64_t n = -3; n < 5000; ++n) EXPECT_EQ(bucket(n), *steps.lower_bound(n)) << n;
  for (const int64_t step : steps) {
    if (step > int64_t{1} << 32) break;
    EXPECT_EQ(bucket(step), step);
    EXPECT_EQ(bucket(step - 1), step);
    EXPECT_EQ(bucket(step + 1), *steps.upper_bound(step));
  }
}

TileProblem some_problem() {
  return {.direction = Direction::kForward,
          .dtype = DType::kBF16,
          .heads_q = 8,
          .heads_kv = 2,
          .group = 4,
          .group_offset = 0,
          .dim_qk = 64,
          .dim_v = 64,
          .capacity_q = 1000,
          .capacity_k = 1000};
}

TEST(PlanKey, BucketsTheCapacitiesAlone) {
  const test::FakeProvider provider("a");
  const PlanKey key = plan_key(provider, some_problem(), {.name = "cpu", .threads = 3});
  EXPECT_EQ(key.provider, "a");
  EXPECT_EQ(key.device, "cpu");
  EXPECT_EQ(key.threads, 3);
  TileProblem bucketed = some_problem();
  bucketed.capacity_q = bucketed.capacity_k = 1024;
  EXPECT_EQ(key.problem, bucketed);
  TileProblem near = some_problem();
  near.capacity_q = 900;
  near.capacity_k = 769;
  EXPECT_EQ(plan_key(provider, near, {.name = "cpu", .threads = 3}), key);
}

TEST(PlanKey, EveryFieldTellsKeysApart) {
  const test::FakeProvider provider("a");
  const PlanKey key = plan_key(provider, some_problem(), {});
  void (*const kEdits[])(PlanKey&) = {
      [](PlanKey& k) { k.provider = std::string("b"); },
      [](PlanKey& k) { k.device = std::string("gpu"); },
      [](PlanKey& k) { k.threads = 2; },
      [](PlanKey& k) { k.problem.direction = Direction::kBackward; },
      [](PlanKey& k) { k.problem.dtype = DType::kF16; },
      [](PlanKey& k) { k.problem.heads_q = 16; },
      [](PlanKey& k) { k.problem.heads_kv = 4; },
      [](PlanKey& k) { k.problem.group = 2; },
      [](PlanKey& k) { k.problem.group_offset = 1; },
      [](PlanKey& k) { k.problem.dim_qk = 96; },
      [](PlanKey& k) { k.problem.dim_v = 96; },
      [](PlanKey& k) { k.problem.capacity_q = 64; },
      [](PlanKey& k) { k.problem.capacity_k = 64; },
      [](PlanKey& k) { k.problem.features.softcap = true; },
      [](PlanKey& k) { k.problem.features.window = true; },
      [](PlanKey& k) { k.problem.features.alibi = true; },
      [](PlanKey& k) { k.problem.features.bias = Bias::k1H; },
      [](PlanKey& k) { k.problem.features.dropout = true; },
      [](PlanKey& k) { k.problem.features.max_logit = true; },
      [](PlanKey& k) { k.problem.features.paged = true; },
      [](PlanKey& k) { k.problem.features.device_lengths = true; },
      [](PlanKey& k) { k.problem.features.deterministic = true; },
      [](PlanKey& k) { k.problem.features.fp8 = Fp8::kCurrent; },
      [](PlanKey& k) { k.problem.features.modification = "square"; },
  };
  for (size_t i = 0; i < std::size(kEdits); ++i) {
    PlanKey other = key;
    kEdits[i](other);
    EXPECT_NE(other, key) << "edit " << i;
    EXPECT_NE(PlanKeyHash()(other), PlanKeyHash()(key)) << "edit " << i;
  }
  PlanKey one = key;
  one.problem.features.modification = "square";
  PlanKey two = key;
  two.problem.features.modification = "cube";
  EXPECT_NE(one, two);
}

TEST(PlanKey, RandomKeysAreEqualExactlyWhenTheirFieldsAre) {
  std::mt19937_64 random(31);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  using Fields = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;
  std::set<Fields> distinct;
  std::unordered_set<PlanKey, PlanKeyHash> keys;
  std::unordered_set<size_t> hashes;
  const test::FakeProvider provider("a");
  for (int i = 0; i < 50'000; ++i) {
    const Fields f{below(2), below(4), below(9), below(9), below(5), below(9), below(9), below(3)};
    const auto& [direction, dtype, heads, kv, offset, dim, capacity, threads] = f;
    TileProblem p = some_problem();
    p.direction = static_cast<Direction>(direction);
    p.dtype = static_cast<DType>(dtype);
    p.heads_q = heads;
    p.heads_kv = kv;
    p.group_offset = offset;
    p.dim_qk = dim;
    p.capacity_q = int64_t{64} << capacity;
    p.capacity_k = (int64_t{64} << capacity) - below(10);  // of the same bucket
    const PlanKey key = plan_key(provider, p, {.threads = static_cast<int>(threads)});
    const bool fresh = distinct.insert(f).second;
    ASSERT_EQ(keys.insert(key).second, fresh) << i;
    hashes.insert(PlanKeyHash()(key));
  }
  EXPECT_EQ(keys.size(), distinct.size());
  EXPECT_GE(hashes.size(), distinct.size() - distinct.size() / 1000) << "hashes hardly collide";
}

}  // namespace
}  // namespace longspan
