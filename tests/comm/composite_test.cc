// What only the composite communicator does: routes by node, and refuses parts that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <utility>

#include "comm/bodies.h"
#include "comm/ranks.h"

namespace longspan::test {
namespace {

using ::testing::HasSubstr;

/// A communicator that counts what is sent over it.
std::shared_ptr<Communicator> counting(std::shared_ptr<Communicator> inner,
                                       std::atomic<int>& sent) {
  CallbackGroup group = forward_to(inner);
  group.start = [inner, &sent](std::span<const Transfer> transfers) {
    sent += static_cast<int>(transfers.size());
    return inner->start(transfers);
  };
  return make_callback_communicator(std::move(group)).value();
}

TEST(Composite, RoutesByNode) {
  const Topology topology{{0, 1, 0, 1}};
  std::array<std::atomic<int>, 2> inside = {};
  std::atomic<int> across = 0;
  const auto outer = make_threads_communicators(topology);
  const std::array nodes = {make_threads_communicators(Topology::blocks(2, 1)),
                            make_threads_communicators(Topology::blocks(2, 1))};
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (size_t rank = 0; rank < 4; ++rank) {
    auto made = make_composite_communicator(counting(nodes[rank % 2][rank / 2], inside[rank % 2]),
                                            counting(outer[rank], across), topology);
    ASSERT_TRUE(made.ok()) << made.error().text();
    ranks.push_back(std::move(made).value());
  }
  EXPECT_EQ(ranks[3]->name(), "composite of callback and callback");
  EXPECT_EQ(ranks[3]->topology().node_of_rank, topology.node_of_rank);
  run_ranks(std::move(ranks), [](Communicator& own) {
    const std::array<uint64_t, 1> mine = {static_cast<uint64_t>(own.rank())};
    const auto all = exchange_words(own, mine, kPatience);
    ASSERT_TRUE(all.ok()) << all.error().text();
    EXPECT_THAT(*all, ::testing::ElementsAre(0, 1, 2, 3));
  });
  EXPECT_EQ(inside[0], 4);  // each rank sends to its neighbour and receives from it
  EXPECT_EQ(inside[1], 4);
  EXPECT_EQ(across, 16);
}

TEST(Composite, ErrorsInsideANodeSayWhichRanksTheyCount) {
  auto ranks = make_composites({{0, 1, 1}});
  ranks[2]->abandon({ErrorCode::kDriver, "the cause", "test"});
  char byte = 0;
  const Transfer transfer = {TransferKind::kRecv, 2, 0, &byte, 1};
  const auto request = ranks[1]->start(std::span(&transfer, 1));
  const Status status = request.ok() ? ranks[1]->wait(*request, kPatience) : request.error();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(status.error().message, HasSubstr("rank 1 left"));
  EXPECT_THAT(status.error().message, HasSubstr("counted among the ranks 1, 2 of the node"));
}

TEST(Composite, PartsThatDoNotFitAreRefused) {
  const auto expect_bad = [](std::shared_ptr<Communicator> inner,
                             std::shared_ptr<Communicator> outer, Topology topology,
                             const char* text) {
    const auto made =
        make_composite_communicator(std::move(inner), std::move(outer), std::move(topology));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(made.error().message, HasSubstr(text));
  };
  const auto four = make_threads_communicators(Topology::blocks(4, 2));
  const auto two = make_threads_communicators(Topology::blocks(2, 1));
  const auto one = make_threads_communicators(Topology::blocks(1, 1));
  expect_bad(nullptr, four[0], Topology::blocks(4, 2), "null");
  expect_bad(two[0], four[0], Topology::blocks(3, 1), "has 4 ranks and the topology 3");
  expect_bad(one[0], four[0], Topology::blocks(4, 2),
             "rank 0 is 0 of 2 on its node, and the inner communicator says 0 of 1");
  expect_bad(two[0], four[3], Topology::blocks(4, 2), "says 0 of 2");
}

}  // namespace
}  // namespace longspan::test
