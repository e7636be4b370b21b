#include "comm/bodies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "comm/messages.h"

namespace longspan::test {
namespace {

using ::testing::HasSubstr;

/// Sizes of one round, the same on every rank; every pair and also each rank to itself.
std::vector<size_t> random_sizes(std::mt19937& random, int ranks) {
  constexpr std::array<size_t, 8> kSizes = {0, 1, 63, 4096, 4097, 65536, 200001, 3 << 20};
  std::vector<size_t> sizes(static_cast<size_t>(ranks) * static_cast<size_t>(ranks));
  for (size_t& size : sizes) {
    const size_t pick = random() % 40;  // few large ones
    size = pick < 36 ? kSizes[pick % 6] : kSizes[4 + pick % 4];
  }
  return sizes;
}

void all_to_all(Communicator& communicator) {
  std::mt19937 random(7);
  const int ranks = communicator.size();
  const int own = communicator.rank();
  for (size_t round = 0; round < 12; ++round) {
    const std::vector<size_t> sizes = random_sizes(random, ranks);
    const auto size = [&](int source, int destination) {
      return sizes[static_cast<size_t>(source * ranks + destination)];
    };
    std::vector<Bytes> sent;
    std::vector<Inbox> received;
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < ranks; ++peer) {
      sent.push_back(outbox(size(own, peer), own, peer, round));
      received.emplace_back(size(peer, own));
      transfers.push_back(send_of(sent.back(), peer, 3));
      transfers.push_back(received.back().transfer(peer, 3));
    }
    std::mt19937 order(static_cast<unsigned>(own) + 31 * static_cast<unsigned>(round));
    std::shuffle(transfers.begin(), transfers.end(), order);
    ASSERT_NO_FATAL_FAILURE(finish(communicator, communicator.start(transfers)));
    for (int peer = 0; peer < ranks; ++peer) {
      received[static_cast<size_t>(peer)].expect(peer, own, round);
    }
  }
}

/// Tags are posted in one order by the sender and in another by the receiver, each message with a
/// request of its own, and waited for in a third order.
void tags_out_of_order(Communicator& communicator) {
  constexpr std::array<uint32_t, 6> kTags = {0, 5, kLargestTag, 77, 1u << 20, 6};
  const int ranks = communicator.size();
  const int own = communicator.rank();
  const int right = (own + 1) % ranks;
  const int left = (own + ranks - 1) % ranks;
  const auto bytes = [](size_t message) { return message * 30011; };
  std::vector<Bytes> sent;
  std::vector<Inbox> received;
  for (size_t i = 0; i < kTags.size(); ++i) {
    sent.push_back(outbox(bytes(i), own, right, i));
    received.emplace_back(bytes(i));
  }
  std::vector<Request> requests;
  for (size_t i = 0; i < kTags.size(); ++i) {
    const size_t reversed = kTags.size() - 1 - i;
    const std::array<Transfer, 2> both = {send_of(sent[i], right, kTags[i]),
                                          received[reversed].transfer(left, kTags[reversed])};
    const auto request = communicator.start(both);
    ASSERT_TRUE(request.ok()) << request.error().text();
    requests.push_back(*request);
  }
  for (const size_t i : {3, 0, 5, 1, 4, 2}) {
    ASSERT_NO_FATAL_FAILURE(finish(communicator, requests[i]));
  }
  for (size_t i = 0; i < kTags.size(); ++i) received[i].expect(left, own, i);
}

void same_tag_keeps_order(Communicator& communicator) {
  constexpr size_t kMessages = 16;
  const int ranks = communicator.size();
  const int own = communicator.rank();
  const int peer = ranks - 1 - own;  // the middle rank of an odd number talks to itself
  const auto bytes = [](size_t message) { return message % 5 == 4 ? 300000 : message * 17; };
  std::vector<Bytes> sent;
  std::vector<Inbox> received;
  for (size_t i = 0; i < kMessages; ++i) {
    sent.push_back(outbox(bytes(i), own, peer, i));
    received.emplace_back(bytes(i));
  }
  std::vector<Transfer> sends;
  for (Bytes& data : sent) sends.push_back(send_of(data, peer, 9));
  const auto all_sent = communicator.start(sends);
  ASSERT_NO_FATAL_FAILURE(barrier(communicator));  // so that messages come before the receives
  std::vector<Request> requests;
  for (Inbox& inbox : received) {
    const Transfer transfer = inbox.transfer(peer, 9);
    const auto request = communicator.start(std::span(&transfer, 1));
    ASSERT_TRUE(request.ok()) << request.error().text();
    requests.push_back(*request);
  }
  for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
    ASSERT_NO_FATAL_FAILURE(finish(communicator, *request));
  }
  ASSERT_NO_FATAL_FAILURE(finish(communicator, all_sent));
  for (size_t i = 0; i < kMessages; ++i) received[i].expect(peer, own, i);
}

/// A rank that is ahead by several rounds does not disturb one that is behind.
void ring_without_lockstep(Communicator& communicator) {
  const int ranks = communicator.size();
  const int own = communicator.rank();
  const int right = (own + 1) % ranks;
  const int left = (own + ranks - 1) % ranks;
  for (size_t round = 0; round < 200; ++round) {
    Bytes sent = outbox(round * 13, own, right, round);
    Inbox received(round * 13);
    const std::array<Transfer, 2> both = {received.transfer(left, 1), send_of(sent, right, 1)};
    ASSERT_NO_FATAL_FAILURE(finish(communicator, communicator.start(both)));
    received.expect(left, own, round);
  }
}

void words(Communicator& communicator) {
  for (const size_t length : {0, 1, 5, 1000}) {
    std::vector<uint64_t> mine(length);
    std::iota(mine.begin(), mine.end(), 1000000 * static_cast<uint64_t>(communicator.rank()));
    const auto all = exchange_words(communicator, mine, kPatience);
    ASSERT_TRUE(all.ok()) << all.error().text();
    ASSERT_EQ(all->size(), length * static_cast<size_t>(communicator.size()));
    for (size_t i = 0; i < all->size(); ++i) {
      EXPECT_EQ((*all)[i], 1000000 * (i / length) + i % length);
    }
  }
}

struct Expected {
  std::vector<int> members;
  std::vector<int> nodes;
};

Expected expected_part(const std::vector<int>& colors, const std::vector<int>& keys,
                       const Topology& topology, int own) {
  Expected expected;
  const auto at = [](const std::vector<int>& values, int rank) {
    return values[static_cast<size_t>(rank)];
  };
  // The next member is the one with the smallest (key, rank) above the last.
  std::pair<int64_t, int> last = {INT64_MIN, -1};
  for (;;) {
    std::pair<int64_t, int> best = {INT64_MAX, 0};
    for (int rank = 0; rank < topology.ranks(); ++rank) {
      const std::pair<int64_t, int> candidate = {at(keys, rank), rank};
      if (at(colors, rank) == at(colors, own) && candidate > last) best = std::min(best, candidate);
    }
    if (best.first == INT64_MAX) return expected;
    expected.members.push_back(best.second);
    expected.nodes.push_back(at(topology.node_of_rank, best.second));
    last = best;
  }
}

void split_once(Communicator& communicator, std::mt19937& random) {
  const int ranks = communicator.size();
  const int own = communicator.rank();
  std::vector<int> colors;
  std::vector<int> keys;
  for (int rank = 0; rank < ranks; ++rank) {
    colors.push_back(static_cast<int>(random() % 3) - 1);
    keys.push_back(static_cast<int>(random() % 4) - 2);
  }
  const auto part =
      communicator.split(colors[static_cast<size_t>(own)], keys[static_cast<size_t>(own)]);
  ASSERT_TRUE(part.ok()) << part.error().text();
  const Expected expected = expected_part(colors, keys, communicator.topology(), own);
  Communicator& sub = **part;
  EXPECT_EQ(sub.name(), communicator.name());
  ASSERT_EQ(sub.size(), static_cast<int>(expected.members.size()));
  EXPECT_EQ(expected.members[static_cast<size_t>(sub.rank())], own);
  ASSERT_EQ(sub.topology().ranks(), sub.size());
  for (int a = 0; a < sub.size(); ++a) {
    for (int b = 0; b < sub.size(); ++b) {
      const auto node = [&](const std::vector<int>& nodes, int r) {
        return nodes[static_cast<size_t>(r)];
      };
      EXPECT_EQ(node(sub.topology().node_of_rank, a) == node(sub.topology().node_of_rank, b),
                node(expected.nodes, a) == node(expected.nodes, b));
    }
  }
  const std::array<uint64_t, 1> mine = {static_cast<uint64_t>(own)};
  const auto all = exchange_words(sub, mine, kPatience);
  ASSERT_TRUE(all.ok()) << all.error().text();
  EXPECT_EQ(*all, std::vector<uint64_t>(expected.members.begin(), expected.members.end()));
  ASSERT_NO_FATAL_FAILURE(all_to_all(sub));
  ASSERT_NO_FATAL_FAILURE(barrier(communicator));  // the whole works beside its parts
}

void split(Communicator& communicator) {
  std::mt19937 random(11);
  for (int round = 0; round < 4; ++round) {
    ASSERT_NO_FATAL_FAILURE(split_once(communicator, random));
  }
}

void memory(Communicator& communicator) {
  const int right = (communicator.rank() + 1) % communicator.size();
  const int left = (communicator.rank() + communicator.size() - 1) % communicator.size();
  const auto source = communicator.allocate(1000);
  const auto target = communicator.allocate(1000);
  const auto nothing = communicator.allocate(0);
  ASSERT_TRUE(source.ok() && target.ok() && nothing.ok());
  for (void* data : {*source, *target, *nothing}) {
    EXPECT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  }
  std::memset(*source, communicator.rank() + 1, 1000);
  EXPECT_TRUE(communicator.register_buffer(*source, 1000).ok());
  const std::array<Transfer, 2> both = {
      Transfer{TransferKind::kSend, right, 2, *source, 1000},
      Transfer{TransferKind::kRecv, left, 2, *target, 1000},
  };
  ASSERT_NO_FATAL_FAILURE(finish(communicator, communicator.start(both)));
  EXPECT_EQ(*static_cast<unsigned char*>(*target), left + 1);
  communicator.deregister_buffer(*source);
  communicator.release(*source);
  communicator.release(*nothing);
  communicator.release(nullptr);
  const auto huge = communicator.allocate(SIZE_MAX - 100);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(huge.error().message, HasSubstr(std::to_string(SIZE_MAX - 100)));
  // `target` goes with the communicator: the leak checker sees it otherwise.
}

void expect_refused(Communicator& communicator, const Transfer& transfer, const char* text) {
  const auto request = communicator.start(std::span(&transfer, 1));
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(request.error().message, HasSubstr(text));
}

void bad_arguments(Communicator& communicator) {
  char byte = 0;
  const int ranks = communicator.size();
  const std::string outside = "peer " + std::to_string(ranks);
  expect_refused(communicator, {TransferKind::kSend, ranks, 0, &byte, 1}, outside.c_str());
  expect_refused(communicator, {TransferKind::kRecv, -1, 0, &byte, 1}, "peer -1");
  expect_refused(communicator, {TransferKind::kSend, 0, 0, nullptr, 7}, "7 bytes");
  expect_refused(communicator, {TransferKind::kSend, 0, 0xffffffff, &byte, 1}, "tag 4294967295");

  const auto empty = communicator.start({});
  ASSERT_NO_FATAL_FAILURE(finish(communicator, empty));
  for (const Request request : {*empty, Request{}, Request{12345}, Request{INT64_MAX}}) {
    const Status again = communicator.wait(request, kPatience);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  }
  ASSERT_NO_FATAL_FAILURE(barrier(communicator));  // nothing broke
}

constexpr Body kBodies[] = {
    {"all_to_all", all_to_all},
    {"tags_out_of_order", tags_out_of_order},
    {"same_tag_keeps_order", same_tag_keeps_order},
    {"ring_without_lockstep", ring_without_lockstep},
    {"words", words},
    {"split", split},
    {"memory", memory},
    {"bad_arguments", bad_arguments},
};

}  // namespace

std::span<const Body> healthy_bodies() { return kBodies; }

}  // namespace longspan::test
