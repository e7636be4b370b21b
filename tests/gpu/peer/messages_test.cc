// Messages of the peer communicator, ranks as threads: order, sizes, streams, and how lost and late
// peers end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "cuda/runtime.h"
#include "cuda/words.h"
#include "longspan/communicator.h"
#include "longspan/device.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{30000};

template <class T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().text();
  return std::move(result).value();
}

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().text(); }

testkit::Communicators ranks_on_device(int ranks) {
  const std::vector<Device> devices(static_cast<size_t>(ranks), must(cuda_device(0)));
  return must(make_peer_communicators(Topology::blocks(ranks, 1), devices));
}

/// Device memory of a rank that holds words.
struct Words {
  explicit Words(std::vector<uint32_t> values)
      : count(values.size()), memory(must(cuda::Memory::copy_of(values.data(), 4 * count))) {}
  std::vector<uint32_t> read() const {
    std::vector<uint32_t> values(count);
    expect_ok(cuda::copy(values.data(), memory.data(), 4 * count));
    return values;
  }
  Transfer to(int peer, uint32_t tag) const {
    return {TransferKind::kSend, peer, tag, memory.data(), 4 * count};
  }
  Transfer from(int peer, uint32_t tag) const {
    return {TransferKind::kRecv, peer, tag, memory.data(), 4 * count};
  }
  size_t count;
  cuda::Memory memory;
};

TEST(PeerMessages, TagsOutOfOrderOnAlternatingStreams) {
  testkit::for_each_rank(ranks_on_device(3), [](std::shared_ptr<Communicator> own) {
    const std::array streams = {must(cuda::OwnedStream::make()), must(cuda::OwnedStream::make())};
    const int right = (own->rank() + 1) % 3;
    const int left = (own->rank() + 2) % 3;
    for (uint32_t round = 0; round < 100; ++round) {
      const Stream stream = streams[round % 2].get();
      const auto value = static_cast<uint32_t>(own->rank()) * 1000 + round;
      const Words a({value, value}), b({value + 500}), in_a({0, 0}), in_b({0}), self({0});
      const std::array first = {a.to(right, 7), b.to(right, 9), in_b.from(left, 9)};
      const std::array second = {in_a.from(left, 7), b.to(own->rank(), 3),
                                 self.from(own->rank(), 3)};
      const Request one = must(own->start_on(first, stream));
      const Request two = must(own->start_on(second, stream));
      expect_ok(own->wait_on(two, stream, kPatience));
      expect_ok(own->wait_on(one, stream, kPatience));
      expect_ok(cuda::synchronize(stream));
      const auto theirs = static_cast<uint32_t>(left) * 1000 + round;
      EXPECT_EQ(in_a.read(), (std::vector<uint32_t>{theirs, theirs}));
      EXPECT_EQ(in_b.read(), (std::vector<uint32_t>{theirs + 500}));
      EXPECT_EQ(self.read(), (std::vector<uint32_t>{value + 500}));
    }
  });
}

TEST(PeerMessages, TheSameTagKeepsItsOrderFarAheadOfTheDevice) {
  constexpr uint32_t kMessages = 1500;
  testkit::for_each_rank(ranks_on_device(2), [](std::shared_ptr<Communicator> own) {
    const auto stream = must(cuda::OwnedStream::make());
    const bool sends = own->rank() == 0;
    std::vector<uint32_t> counted(kMessages);
    for (uint32_t i = 0; i < kMessages; ++i) counted[i] = sends ? i : 0;
    const Words all(counted);
    for (uint32_t i = 0; i < kMessages; ++i) {
      void* const word = static_cast<uint32_t*>(all.memory.data()) + i;
      const Transfer transfer{sends ? TransferKind::kSend : TransferKind::kRecv, 1 - own->rank(), 1,
                              word, 4};
      const Request request = must(own->start_on({&transfer, 1}, stream.get()));
      expect_ok(own->wait_on(request, stream.get(), kPatience));
    }
    expect_ok(cuda::synchronize(stream.get()));
    const std::vector<uint32_t> got = all.read();
    for (uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(got[i], i);
  });
}

TEST(PeerMessages, RequestsThatNobodyWaitsForRunOut) {
  const auto own = ranks_on_device(1).front();
  const auto stream = must(cuda::OwnedStream::make());
  std::vector<Request> open;
  Result<Request> next = own->start_on({}, stream.get());
  for (; next.ok() && open.size() < 1000; next = own->start_on({}, stream.get())) {
    open.push_back(*next);
  }
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(next.error().message, HasSubstr("256 requests are open"));
  for (const Request request : open) expect_ok(own->wait_on(request, stream.get(), kPatience));
  expect_ok(cuda::synchronize(stream.get()));
  EXPECT_TRUE(own->start_on({}, stream.get()).ok());
}

TEST(PeerMessages, SeveralOfATagInFlightKeepTheirOrder) {
  constexpr uint32_t kRounds = 200;
  constexpr uint32_t kInFlight = 3;  // does not divide the number of flights that are reused
  testkit::for_each_rank(ranks_on_device(2), [](std::shared_ptr<Communicator> own) {
    const auto stream = must(cuda::OwnedStream::make());
    const int peer = 1 - own->rank();
    std::vector<uint32_t> sent(kRounds * kInFlight);
    for (uint32_t i = 0; i < sent.size(); ++i) sent[i] = i + 1;
    const Words out(sent), in(std::vector<uint32_t>(sent.size()));
    for (uint32_t round = 0; round < kRounds; ++round) {
      std::array<Request, kInFlight> requests;
      for (uint32_t i = 0; i < kInFlight; ++i) {
        const uint32_t at = round * kInFlight + i;
        const std::array both = {Transfer{TransferKind::kSend, peer, 1,
                                          static_cast<uint32_t*>(out.memory.data()) + at, 4},
                                 Transfer{TransferKind::kRecv, peer, 1,
                                          static_cast<uint32_t*>(in.memory.data()) + at, 4}};
        requests[i] = must(own->start_on(both, stream.get()));
      }
      for (const Request request : requests) {
        expect_ok(own->wait_on(request, stream.get(), kPatience));
      }
      if (round % 7 == 0) expect_ok(cuda::synchronize(stream.get()));
    }
    expect_ok(cuda::synchronize(stream.get()));
    EXPECT_EQ(in.read(), sent);
  });
}

TEST(PeerMessages, DifferentSizesAreAnErrorOnBothSides) {
  testkit::for_each_rank(ranks_on_device(2), [](std::shared_ptr<Communicator> own) {
    const auto stream = must(cuda::OwnedStream::make());
    const Words words(std::vector<uint32_t>(own->rank() == 0 ? 2 : 3));
    const Transfer transfer = own->rank() == 0 ? words.to(1, 5) : words.from(0, 5);
    const auto request = own->start_on({&transfer, 1}, stream.get());
    const Status status =
        request.ok() ? own->wait_on(*request, stream.get(), kPatience) : Status(request.error());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << status.error().text();
    EXPECT_THAT(status.error().message, HasSubstr("rank 0 sends 8 bytes"));
    EXPECT_THAT(status.error().message, HasSubstr("rank 1 expects 12"));
  });
}

TEST(PeerMessages, WhoNeverPostsIsLate) {
  const testkit::Communicators all = ranks_on_device(2);
  const auto stream = must(cuda::OwnedStream::make());
  const Words words({0});
  const Transfer transfer = words.from(1, 5);
  const Request request = must(all[0]->start_on({&transfer, 1}, stream.get()));
  const Status status = all[0]->wait_on(request, stream.get(), 100ms);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(status.error().message, HasSubstr("rank 1 did not send 4 bytes"));
}

/// A stream that waits for a word which nobody writes before the test says so.
class Stuck {
 public:
  explicit Stuck(Stream stream) : word_({0}), helper_(must(cuda::OwnedStream::make())) {
    cuda::WordOperations wait;
    wait.wait(word());
    expect_ok(wait.enqueue(stream));
  }
  ~Stuck() {
    cuda::WordOperations write;
    write.write(word(), 1);
    expect_ok(write.enqueue(helper_.get()));
    expect_ok(cuda::synchronize(helper_.get()));
  }

 private:
  uint32_t* word() const { return static_cast<uint32_t*>(word_.memory.data()); }
  Words word_;
  cuda::OwnedStream helper_;
};

TEST(PeerMessages, WhoseDeviceNeverGetsThereIsLate) {
  std::barrier<> together(2);
  const auto begin = Clock::now();
  testkit::for_each_rank(ranks_on_device(2), [&](std::shared_ptr<Communicator> own) {
    const auto stream = must(cuda::OwnedStream::make());
    const Words words({own->rank() == 1 ? 42u : 0u});
    std::optional<Stuck> stuck;
    if (own->rank() == 1) stuck.emplace(stream.get());
    const Transfer transfer = own->rank() == 1 ? words.to(0, 5) : words.from(1, 5);
    const Request request = must(own->start_on({&transfer, 1}, stream.get()));
    expect_ok(own->wait_on(request, stream.get(), own->rank() == 0 ? 500ms : kPatience));
    if (own->rank() == 0) {
      expect_ok(cuda::synchronize(stream.get()));  // ends, because the watch ends the wait
      const Status health = own->health();
      ASSERT_FALSE(health.ok());
      EXPECT_EQ(health.error().code, ErrorCode::kPeerLost);
      EXPECT_THAT(health.error().message, HasSubstr("rank 1 did not send 4 bytes"));
      EXPECT_FALSE(own->start_on({&transfer, 1}, stream.get()).ok());
    }
    together.arrive_and_wait();
    stuck.reset();
    expect_ok(cuda::synchronize(stream.get()));
    while (own->health().ok()) std::this_thread::sleep_for(1ms);  // told by the other rank
    EXPECT_THAT(own->health().error().message, HasSubstr("rank"));
    together.arrive_and_wait();
  });
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(PeerMessages, AbandonEndsWaitsOfHostAndDeviceWithTheReason) {
  const auto begin = Clock::now();
  testkit::for_each_rank(ranks_on_device(2), [](std::shared_ptr<Communicator> own) {
    const auto stream = must(cuda::OwnedStream::make());
    if (own->rank() == 1) {
      std::this_thread::sleep_for(50ms);
      own->abandon({ErrorCode::kOutOfMemory, "no room", "test"});
      std::this_thread::sleep_for(200ms);
      return;
    }
    const Words words({0});
    const Transfer transfer = words.from(1, 5);
    const Request request = must(own->start_on({&transfer, 1}, stream.get()));
    const Status status = own->wait_on(request, stream.get(), kPatience);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
    EXPECT_THAT(status.error().message, HasSubstr("rank 1 left: out_of_memory (test): no room"));
    EXPECT_FALSE(own->health().ok());
  });
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(PeerMessages, PartsOfASplitAreOnTheirOwn) {
  testkit::for_each_rank(ranks_on_device(4), [](std::shared_ptr<Communicator> own) {
    const auto part = must(own->split(own->rank() % 2, -own->rank()));
    ASSERT_EQ(part->size(), 2);
    EXPECT_EQ(part->name(), "peer");
    const auto stream = must(cuda::OwnedStream::make());
    const auto value = static_cast<uint32_t>(own->rank());
    const Words out({value}), in({99});
    const std::array both = {out.to(1 - part->rank(), 5), in.from(1 - part->rank(), 5)};
    const Request request = must(part->start_on(both, stream.get()));
    expect_ok(part->wait_on(request, stream.get(), kPatience));
    expect_ok(cuda::synchronize(stream.get()));
    EXPECT_EQ(in.read(), (std::vector<uint32_t>{(value + 2) % 4}));
  });
}

}  // namespace
}  // namespace longspan::testing
