// What ranks see when one of them leaves, is late or disagrees; ranks as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/bodies.h"
#include "comm/ranks.h"

namespace longspan::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kShort{200};
constexpr std::chrono::milliseconds kSoon{15000};  // "at once" on a loaded machine; < kPatience

class Failures : public ::testing::TestWithParam<Kind> {
 protected:
  std::vector<std::shared_ptr<Communicator>> ranks(int count) {
    return make_ranks(GetParam(), Topology::blocks(count, 1));
  }
};

INSTANTIATE_TEST_SUITE_P(All, Failures,
                         ::testing::Values(Kind::kThreads, Kind::kCallback, Kind::kComposite),
                         [](const auto& info) { return kind_name(info.param); });

Status transfer(Communicator& communicator, TransferKind kind, int peer, size_t bytes,
                std::chrono::milliseconds deadline) {
  std::vector<char> data(bytes);
  const Transfer one = {kind, peer, 4, data.data(), data.size()};
  LONGSPAN_TRY(const Request request, communicator.start(std::span(&one, 1)));
  return communicator.wait(request, deadline);
}

void expect_error(const Status& status, ErrorCode code,
                  const ::testing::Matcher<std::string>& text) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, code);
  EXPECT_THAT(status.error().message, text);
}

TEST_P(Failures, SizeMismatchNamesBothSizesOnBothSides) {
  for (const auto& [sent, expected] : {std::pair<size_t, size_t>{10, 20}, {20, 10}, {0, 1}}) {
    run_ranks(ranks(2), [&, sent = sent, expected = expected](Communicator& own) {
      const bool sends = own.rank() == 0;
      const Status status = transfer(own, sends ? TransferKind::kSend : TransferKind::kRecv,
                                     1 - own.rank(), sends ? sent : expected, kPatience);
      expect_error(status, ErrorCode::kInvalidArgument,
                   AllOf(HasSubstr("rank 0 sends " + std::to_string(sent) + " bytes"),
                         HasSubstr("rank 1 expects " + std::to_string(expected))));
    });
  }
}

TEST_P(Failures, DeadlineNamesThePeerAndBreaksTheCommunicator) {
  auto all = ranks(3);
  Communicator& own = *all[1];
  const auto begin = Clock::now();
  const Status status = transfer(own, TransferKind::kRecv, 2, 8, kShort);
  expect_error(status, ErrorCode::kPeerLost,
               AllOf(HasSubstr("rank 2"), HasSubstr("send 8 bytes"), HasSubstr("200 ms")));
  EXPECT_GE(Clock::now() - begin, kShort);
  EXPECT_LT(Clock::now() - begin, kSoon);
  // Its buffer is gone by now, so a message that comes late must not be written there.
  std::thread late([&] {
    const Status sent = transfer(*all[2], TransferKind::kSend, 1, 8, kShort);
    expect_error(sent, ErrorCode::kPeerLost, HasSubstr("rank 1 did not take 8 bytes"));
  });
  late.join();
  expect_error(transfer(own, TransferKind::kSend, 0, 8, kShort), ErrorCode::kPeerLost,
               HasSubstr("rank 2"));
}

TEST_P(Failures, AbandonReachesAllWhoWaitAtOnceWithTheReason) {
  const auto begin = Clock::now();
  run_ranks(ranks(4), [&](Communicator& own) {
    if (own.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      own.abandon({ErrorCode::kOutOfMemory, "no room for 12 bytes", "engine"});
      own.abandon({ErrorCode::kInternal, "a second reason", "engine"});
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return;
    }
    const TransferKind kind = own.rank() == 0 ? TransferKind::kSend : TransferKind::kRecv;
    expect_error(transfer(own, kind, 2, 100, kPatience), ErrorCode::kPeerLost,
                 AllOf(HasSubstr("rank 2 left"), HasSubstr("out_of_memory"),
                       HasSubstr("no room for 12 bytes")));
  });
  EXPECT_LT(Clock::now() - begin, kSoon);
}

TEST_P(Failures, AbandonReachesThoseWhoComeLater) {
  auto all = ranks(2);
  all[0]->abandon({ErrorCode::kInternal, "early", "test"});
  expect_error(transfer(*all[1], TransferKind::kRecv, 0, 4, kPatience), ErrorCode::kPeerLost,
               HasSubstr("early"));
  EXPECT_FALSE(transfer(*all[0], TransferKind::kRecv, 1, 4, kPatience).ok());
}

TEST_P(Failures, ReasonsPassOnFromRankToRank) {
  run_ranks(ranks(4), [&](Communicator& own) {
    if (own.rank() == 0) return own.abandon({ErrorCode::kDriver, "the cause", "test"});
    const Status status = transfer(own, TransferKind::kRecv, own.rank() - 1, 9, kPatience);
    expect_error(status, ErrorCode::kPeerLost, HasSubstr("the cause"));
    own.abandon(status.error());
  });
}

TEST_P(Failures, ARankWhoseThreadEndsIsMissedAtOnce) {
  const auto begin = Clock::now();
  run_ranks(ranks(4), [&](Communicator& own) {
    if (own.rank() == 3) return;
    const Status status = transfer(own, TransferKind::kRecv, 3, 16, kPatience);
    expect_error(status, ErrorCode::kPeerLost, AllOf(HasSubstr("rank 3"), HasSubstr("destroyed")));
  });
  EXPECT_LT(Clock::now() - begin, kSoon);
}

TEST_P(Failures, MessagesSentBeforeLeavingArrive) {
  auto all = ranks(2);
  std::array<int, 1> sent = {42};
  std::array<int, 1> received = {};
  const Transfer send = {TransferKind::kSend, 1, 0, sent.data(), sizeof sent};
  const Transfer recv = {TransferKind::kRecv, 0, 0, received.data(), sizeof received};
  const auto waits = all[1]->start(std::span(&recv, 1));
  const auto sends = all[0]->start(std::span(&send, 1));
  ASSERT_TRUE(waits.ok() && sends.ok());
  EXPECT_TRUE(all[0]->wait(*sends, kPatience).ok());
  all[0].reset();
  EXPECT_TRUE(all[1]->wait(*waits, kPatience).ok());
  EXPECT_EQ(received[0], 42);
}

TEST_P(Failures, RanksThatDoNotWaitForTheLostOneGoOn) {
  run_ranks(ranks(3), [&](Communicator& own) {
    if (own.rank() == 2) return;
    for (int round = 0; round < 100; ++round) {
      const TransferKind kind = own.rank() == 0 ? TransferKind::kSend : TransferKind::kRecv;
      const Status status = transfer(own, kind, 1 - own.rank(), 1000, kPatience);
      ASSERT_TRUE(status.ok()) << status.error().text();
    }
  });
}

TEST_P(Failures, ExchangedWordsOfUnequalLength) {
  run_ranks(ranks(3), [&](Communicator& own) {
    const std::vector<uint64_t> mine(own.rank() == 1 ? 3 : 2);
    const auto all = exchange_words(own, mine, kPatience);
    ASSERT_FALSE(all.ok());
    EXPECT_THAT(all.error().message, HasSubstr(own.rank() == 1 ? "24" : "16"));
    own.abandon(all.error());
  });
}

TEST_P(Failures, SplitWithoutALostRankEnds) {
  run_ranks(ranks(3), [&](Communicator& own) {
    if (own.rank() == 1) return;
    const auto part = own.split(0, 0);
    ASSERT_FALSE(part.ok());
    EXPECT_EQ(part.error().code, ErrorCode::kPeerLost);
  });
}

/// Ranks leave at random moments while others copy from and to their memory: nobody may touch a
/// buffer after its rank returned (the sanitizers watch).
TEST_P(Failures, LeavingWhileOthersCopyIsSafe) {
  for (int round = 0; round < 30; ++round) {
    std::atomic<int> errors = 0;
    run_ranks(ranks(4), [&](Communicator& own) {
      for (int step = 0;; ++step) {
        if (own.rank() == round % 4 && step == round) return;
        std::vector<char> out(50000, static_cast<char>(step));
        std::vector<std::vector<char>> in(4, std::vector<char>(50000));
        std::vector<Transfer> transfers;
        for (int peer = 0; peer < 4; ++peer) {
          char* const data = in[static_cast<size_t>(peer)].data();
          transfers.push_back({TransferKind::kRecv, peer, 0, data, 50000});
          transfers.push_back({TransferKind::kSend, peer, 0, out.data(), 50000});
        }
        const auto request = own.start(transfers);
        const Status status =
            request.ok() ? own.wait(*request, kPatience) : Status(request.error());
        if (status.ok()) continue;
        EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
        ++errors;
        return;
      }
    });
    EXPECT_EQ(errors, 3);
  }
}

}  // namespace
}  // namespace longspan::test
