// nccl with ranks as threads on two GPUs: messages, strategies, captured calls, late peers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <ostream>
#include <string>

#include "comm/bodies.h"
#include "comm/staging.h"
#include "gpu/nccl/support.h"
#include "testkit/groups.h"

namespace longspan::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{30000};

/// Calls body(communicator) on a thread for each of two ranks.
template <class Body>
void on_two(const Topology& topology, Body&& body) {
  testkit::for_each_rank(make_threads_communicators(topology),
                         [&](std::shared_ptr<Communicator> host) {
                           const Device device = device_of(host->rank());
                           const cuda::DeviceScope scope(device.ordinal);
                           body(must(make_nccl_communicator(std::move(host), device)));
                         });
}
template <class Body>
void on_two(Body&& body) {
  on_two(Topology::blocks(2, 1), std::forward<Body>(body));
}

TEST(Nccl, SaysWhichLibraryItUses) {
  EXPECT_THAT(must(nccl_description()), HasSubstr("libnccl.so.2"));
}

/// Those bodies of all communicators whose messages come in one order.
TEST(Nccl, PassesTheBodiesOfAllCommunicators) {
  for (const test::Body& body : test::healthy_bodies()) {
    if (body.name == "tags_out_of_order" || body.name == "same_tag_keeps_order") continue;
    if (body.name == "split") continue;  // of device communicators: see below
    SCOPED_TRACE(body.name);
    on_two([&](std::shared_ptr<Communicator> own) {
      const auto host = must(comm::Staging::make(*own, own->rank()));
      body.run(*host);
    });
  }
}

TEST(Nccl, TheSameTagKeepsItsOrderFarAheadOfTheDevice) {
  constexpr uint32_t kMessages = 3000;
  on_two([](std::shared_ptr<Communicator> own) {
    const auto stream = must(cuda::OwnedStream::make());
    const bool sends = own->rank() == 0;
    std::vector<uint32_t> values(kMessages);
    for (uint32_t i = 0; i < kMessages; ++i) values[i] = sends ? i : 0;
    const cuda::Memory memory = must(cuda::Memory::copy_of(values.data(), 4 * kMessages));
    for (uint32_t i = 0; i < kMessages; ++i) {
      const Transfer transfer{sends ? TransferKind::kSend : TransferKind::kRecv, 1 - own->rank(), 1,
                              static_cast<uint32_t*>(memory.data()) + i, 4};
      const Request request = must(own->start_on({&transfer, 1}, stream.get()));
      expect_ok(own->wait_on(request, stream.get(), kPatience));
    }
    expect_ok(cuda::synchronize(stream.get()));
    std::vector<uint32_t> got(kMessages);
    expect_ok(cuda::copy(got.data(), memory.data(), 4 * kMessages));
    for (uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(got[i], i);
    expect_ok(own->health());
  });
}

TEST(Nccl, PartsOfASplitAreOnTheirOwn) {
  on_two([](std::shared_ptr<Communicator> own) {
    const auto part = must(own->split(0, -own->rank()));
    EXPECT_EQ(part->rank(), 1 - own->rank());
    EXPECT_EQ(must(own->split(own->rank(), 0))->size(), 1);
    const std::array<uint64_t, 1> mine = {static_cast<uint64_t>(own->rank())};
    const auto over_device = must(comm::Staging::make(*part, own->rank()));
    EXPECT_THAT(must(exchange_words(*over_device, mine, kPatience)), ::testing::ElementsAre(1, 0));
    EXPECT_THAT(must(exchange_words(*part, mine, kPatience)), ::testing::ElementsAre(1, 0));
  });
}

TEST(Nccl, JoinsByIdAndCarriesItsOwnWords) {
  const NcclId id = must(make_nccl_id());
  testkit::for_each_rank(
      make_threads_communicators(Topology::blocks(2, 1)), [&](std::shared_ptr<Communicator> host) {
        const NcclMember member{.rank = host->rank(), .topology = Topology::blocks(2, 1)};
        const auto own = must(make_nccl_communicator(id, member, device_of(host->rank())));
        const std::array<uint64_t, 2> mine = {static_cast<uint64_t>(own->rank()), 5};
        EXPECT_THAT(must(exchange_words(*own, mine, kPatience)),
                    ::testing::ElementsAre(0, 5, 1, 5));
        const auto part = must(own->split(0, -own->rank()));
        EXPECT_THAT(must(exchange_words(*part, mine, kPatience)),
                    ::testing::ElementsAre(1, 5, 0, 5));
      });
}

TEST(Nccl, OneGpuForTwoRanksIsRefusedOnBoth) {
  testkit::for_each_rank(
      make_threads_communicators(Topology::blocks(2, 1)), [](std::shared_ptr<Communicator> host) {
        const auto made = make_nccl_communicator(std::move(host), device_of(0));
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
        EXPECT_THAT(made.error().message, HasSubstr("ranks 0 and 1 have the same GPU"));
      });
}

TEST(Nccl, WhoNeverPostsIsLate) {
  std::barrier<> together(2);
  on_two([&](std::shared_ptr<Communicator> own) {
    if (own->rank() == 0) {
      const auto stream = must(cuda::OwnedStream::make());
      const cuda::Memory memory = must(cuda::Memory::make(4));
      const Transfer transfer{TransferKind::kRecv, 1, 5, memory.data(), 4};
      const auto begin = Clock::now();
      const Request request = must(own->start_on({&transfer, 1}, stream.get()));
      expect_ok(own->wait_on(request, stream.get(), 500ms));
      (void)cuda::synchronize(stream.get()).ok();
      EXPECT_GE(Clock::now() - begin, 500ms);
      EXPECT_LT(Clock::now() - begin, 5s);
      const Status health = own->health();
      ASSERT_FALSE(health.ok());
      EXPECT_EQ(health.error().code, ErrorCode::kPeerLost);
      EXPECT_THAT(health.error().message, HasSubstr("rank 1 did not send 4 bytes"));
      EXPECT_FALSE(own->start_on({&transfer, 1}, stream.get()).ok());
    }
    together.arrive_and_wait();
  });
}

TEST(Nccl, TransfersThatNobodyWaitedForDoNotHoldTheEnd) {
  std::barrier<> together(2);
  const auto begin = Clock::now();
  on_two([&](std::shared_ptr<Communicator> own) {
    const auto stream = must(cuda::OwnedStream::make());
    const cuda::Memory memory = must(cuda::Memory::make(4));
    const Transfer transfer{TransferKind::kRecv, 1, 5, memory.data(), 4};
    if (own->rank() == 0) must(own->start_on({&transfer, 1}, stream.get()));
    own.reset();
    together.arrive_and_wait();
  });
  EXPECT_LT(Clock::now() - begin, 20s);
}

struct Pattern {
  std::string forward, backward;
};
void PrintTo(const Pattern& p, std::ostream* out) { *out << p.forward << "_" << p.backward; }

class NcclGraphs : public ::testing::TestWithParam<Pattern> {};

TEST_P(NcclGraphs, ReplaysEqualEagerCalls) {
  testkit::Case c = two_ranks(GetParam().forward, GetParam().backward);
  const tool::Inputs first = testkit::inputs_of(c);
  c.seed = 1;
  const tool::Inputs second = testkit::inputs_of(c);
  on_two(Topology::blocks(2, c.nodes), [&](std::shared_ptr<Communicator> own) {
    Runner rank(c, first, std::move(own));
    const Bytes expected_first = rank.eager(first);
    const Bytes expected_second = rank.eager(second);
    EXPECT_NE(expected_first, expected_second);
    EXPECT_EQ(rank.eager(first), expected_first);
    const Graph graph = rank.capture();
    EXPECT_EQ(rank.replay(graph, first), expected_first);
    EXPECT_EQ(rank.replay(graph, second), expected_second);
    EXPECT_EQ(rank.eager(first), expected_first) << "eager between replays";
    EXPECT_EQ(rank.replay(graph, second), expected_second);
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, NcclGraphs,
    ::testing::Values(Pattern{"ring", "ring"}, Pattern{"all_gather", "all_gather"},
                      Pattern{"all_to_all", "all_to_all"}, Pattern{"hybrid", "hybrid"},
                      Pattern{"ring", "head_parallel"}),
    [](const auto& info) { return info.param.forward + "_" + info.param.backward; });

}  // namespace
}  // namespace longspan::testing
