// The worker pool: every index once, distinct slots, shared by callers, nested, no allocation.
#include "base/workers.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <latch>
#include <new>
#include <thread>
#include <vector>

namespace {

std::atomic<int64_t> allocations{0};

void* counted(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }

namespace longspan {
namespace {

/// Runs loops whose bodies note who runs what.
class Watch {
 public:
  Watch(int64_t count, int threads)
      : ran_(static_cast<size_t>(count)), busy_(static_cast<size_t>(threads)) {}

  void operator()(int64_t index, int slot) {
    if (slot < 0 || static_cast<size_t>(slot) >= busy_.size()) {
      bad_slots_.fetch_add(1);
      return;
    }
    if (busy_[static_cast<size_t>(slot)].exchange(true)) collisions_.fetch_add(1);
    ran_[static_cast<size_t>(index)].fetch_add(1);
    if (index % 16 == 0) std::this_thread::yield();
    busy_[static_cast<size_t>(slot)].store(false);
  }

  void expect_once_each() const {
    for (const auto& times : ran_) EXPECT_EQ(times.load(), 1);
    EXPECT_EQ(bad_slots_.load(), 0);
    EXPECT_EQ(collisions_.load(), 0);
  }

 private:
  std::vector<std::atomic<int>> ran_;
  std::vector<std::atomic<bool>> busy_;
  std::atomic<int> bad_slots_{0};
  std::atomic<int> collisions_{0};
};

TEST(Workers, RunEveryIndexOnceInDistinctSlots) {
  for (const int threads : {-1, 0, 1, 2, 3, 5}) {
    Workers workers(threads);
    EXPECT_EQ(workers.threads(), std::max(1, threads));
    for (const int64_t count : {0, 1, 2, 7, 500}) {
      Watch watch(count, workers.threads());
      workers.for_each(count, watch);
      watch.expect_once_each();
    }
  }
}

TEST(Workers, NegativeCountsRunNothing) {
  Workers workers(3);
  std::atomic<int> calls{0};
  workers.for_each(-4, [&](int64_t, int) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 0);
}

TEST(Workers, SmallLoopsStayOnTheCaller) {
  Workers workers(4);
  std::thread::id where;
  workers.for_each(1, [&](int64_t, int slot) {
    where = std::this_thread::get_id();
    EXPECT_EQ(slot, 0);
  });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(Workers, AllThreadsTakePart) {
  constexpr int kThreads = 4;
  Workers workers(kThreads);
  for (int round = 0; round < 20; ++round) {
    std::latch everyone(kThreads);  // opens only when all indices run at the same time
    Watch watch(kThreads, kThreads);
    workers.for_each(kThreads, [&](int64_t index, int slot) {
      everyone.arrive_and_wait();
      watch(index, slot);
    });
    watch.expect_once_each();
  }
}

TEST(Workers, ResultsAreVisibleWhenTheLoopReturns) {
  Workers workers(3);
  std::vector<int64_t> squares(300);
  for (int round = 0; round < 50; ++round) {
    workers.for_each(300, [&](int64_t i, int) { squares[static_cast<size_t>(i)] = i * i + round; });
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(squares[static_cast<size_t>(i)], i * i + round);
  }
}

TEST(Workers, AreSharedByConcurrentCallers) {
  Workers workers(4);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < 40; ++round) {
        const int64_t count = 1 + (c * 37 + round * 11) % 60;
        Watch watch(count, workers.threads());
        workers.for_each(count, watch);
        watch.expect_once_each();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Workers, LoopsMayBeNestedFromSeveralThreads) {
  Workers workers(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      workers.for_each(8, [&](int64_t outer, int) {
        Watch watch(20, workers.threads());
        workers.for_each(20, [&](int64_t inner, int slot) {
          watch(inner, slot);
          workers.for_each(3, [&](int64_t innermost, int) {
            sum.fetch_add(outer * 100 + inner * 10 + innermost);
          });
        });
        watch.expect_once_each();
      });
    });
  }
  for (std::thread& caller : callers) caller.join();
  int64_t expected = 0;
  for (int64_t o = 0; o < 8; ++o) {
    for (int64_t i = 0; i < 20; ++i) {
      for (int64_t m = 0; m < 3; ++m) expected += o * 100 + i * 10 + m;
    }
  }
  EXPECT_EQ(sum.load(), 3 * expected);
}

TEST(Workers, AllocateNothing) {
  Workers workers(4);
  std::atomic<int64_t> sum{0};
  const auto loops = [&] {
    for (int round = 0; round < 100; ++round) {
      workers.for_each(64, [&](int64_t index, int) {
        sum.fetch_add(index);
        workers.for_each(2, [&](int64_t inner, int) { sum.fetch_add(inner); });
      });
    }
  };
  loops();
  const int64_t before = allocations.load();
  loops();
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(sum.load(), 2 * 100 * (64 * 63 / 2 + 64));
}

/// The system gives no stacks of this size.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST(Workers, WithoutThreadsTheCallerDoesItAll) {
  const NoMoreThreads scarce;
  Workers workers(8);
  EXPECT_EQ(workers.threads(), 1);
  int64_t sum = 0;
  workers.for_each(100, [&](int64_t index, int slot) { sum += index + slot; });
  EXPECT_EQ(sum, 99 * 100 / 2);
}

TEST(Workers, ComeAndGoWithoutWork) {
  for (int i = 0; i < 50; ++i) {
    Workers workers(3);
    if (i % 2) workers.for_each(5, [](int64_t, int) {});
  }
}

}  // namespace
}  // namespace longspan
