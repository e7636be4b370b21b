// Warm calls allocate nothing, on any rank's thread or worker. This program counts operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "testkit/flight.h"
#include "testkit/groups.h"
#include "testkit/pairs.h"

namespace {

std::atomic<int64_t> allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  void* const data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void* counted(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto step = static_cast<std::size_t>(alignment);
  void* const data = std::aligned_alloc(step, (bytes + step - 1) / step * step);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// Temporary buffers of std::stable_sort come from here.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, alignment);
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }

namespace longspan::testkit {
namespace {

class SteadyState
    : public testing::TestWithParam<std::tuple<StrategyPair, const char*, const char*>> {};

TEST_P(SteadyState, NothingIsAllocated) {
  constexpr int kRanks = 4;
  const auto& [pair, provider, more] = GetParam();
  const Case c{
      .problem = std::string("dtype=bf16 heads=4/2 dim=24 lengths=150,0,31 mask=causal") + more,
      .ranks = kRanks,
      .nodes = 2,
      .forward = pair.forward,
      .backward = pair.backward,
      .partition = "zigzag",
      .provider = provider};
  const tool::Inputs inputs = inputs_of(c);
  std::atomic<int> warm = 0;
  std::atomic<int> done = 0;
  std::atomic<int> failed = 0;
  std::atomic<bool> go = false;
  std::atomic<bool> leave = false;
  std::vector<std::thread> threads;
  for (const auto& communicator : make_threads_communicators(Topology::blocks(kRanks, c.nodes))) {
    threads.emplace_back([&, communicator] {
      const auto engine = Engine::create(options_of(c), communicator, shared_device()).value();
      Flight flight =
          make_flight(inputs, engine->prepare(inputs.declared()).value(), communicator->rank());
      const ForwardOperands ahead = flight.forward_operands();
      const BackwardOperands back = flight.backward_operands();
      const Saved saved = flight.saved_pointers();
      Stream stream;
      const auto step = [&] {
        const bool ok =
            engine->forward(*flight.call, ahead, saved, flight.scratch(), stream).ok() &&
            engine->backward(*flight.call, back, saved, flight.scratch(), stream).ok();
        if (!ok) ++failed;
      };
      for (int i = 0; i < 3; ++i) step();
      ++warm;
      while (!go) std::this_thread::yield();
      for (int i = 0; i < 10; ++i) step();
      ++done;
      while (!leave) std::this_thread::yield();
    });
  }
  while (warm < kRanks) std::this_thread::yield();
  const int64_t before = allocations;
  EXPECT_GT(before, 0);  // the counter counts
  go = true;
  while (done < kRanks) std::this_thread::yield();
  EXPECT_EQ(allocations - before, 0);
  leave = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
}

INSTANTIATE_TEST_SUITE_P(Strategies, SteadyState,
                         testing::Combine(testing::ValuesIn(diagonal_pairs()),
                                          testing::Values("cpu/tiled", "cpu/reference"),
                                          testing::Values("", " device_lengths=true")));

}  // namespace
}  // namespace longspan::testkit
