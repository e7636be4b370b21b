// The threads communicator allocates nothing in steady state. This program counts operator new.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "longspan/communicator.h"

namespace {

std::atomic<int64_t> allocations = 0;

void* counted(size_t bytes) {
  ++allocations;
  void* const data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }

namespace longspan {
namespace {

constexpr int kRanks = 4;
constexpr std::chrono::milliseconds kPatience{30000};

struct Buffers {
  std::array<std::array<char, 512>, 2 * kRanks> memory = {};
  std::array<std::array<Transfer, 2 * kRanks>, 2> transfers = {};
};

/// Two requests in flight with every peer, messages of both kinds and several tags.
void step(Communicator& own, Buffers& buffers) {
  std::array<Request, 2> requests;
  for (size_t set = 0; set < 2; ++set) {
    for (int peer = 0; peer < kRanks; ++peer) {
      const auto at = static_cast<size_t>(2 * peer);
      const auto tag = static_cast<uint32_t>(set);
      buffers.transfers[set][at] = {TransferKind::kSend, peer, tag, buffers.memory[at].data(), 512};
      buffers.transfers[set][at + 1] = {TransferKind::kRecv, peer, tag,
                                        buffers.memory[at + 1].data(), 512};
    }
    const auto request = own.start(buffers.transfers[set]);
    ASSERT_TRUE(request.ok());
    requests[set] = *request;
  }
  ASSERT_TRUE(own.wait(requests[1], kPatience).ok());
  ASSERT_TRUE(own.wait(requests[0], kPatience).ok());
}

TEST(Threads, NothingIsAllocatedInSteadyState) {
  auto communicators = make_threads_communicators(Topology::blocks(kRanks, 1));
  std::vector<Buffers> buffers(kRanks);
  std::atomic<int> warm = 0;
  std::atomic<int> done = 0;
  std::atomic<bool> go = false;
  std::atomic<bool> leave = false;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 0; i < 3; ++i) step(*communicators[rank], buffers[rank]);
      ++warm;
      while (!go) std::this_thread::yield();
      for (int i = 0; i < 300; ++i) step(*communicators[rank], buffers[rank]);
      ++done;
      while (!leave) std::this_thread::yield();
    });
  }
  while (warm < kRanks) std::this_thread::yield();
  const int64_t before = allocations;
  EXPECT_GT(before, 0);  // the counter counts
  go = true;
  while (done < kRanks) std::this_thread::yield();
  EXPECT_EQ(allocations, before);
  leave = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace longspan
