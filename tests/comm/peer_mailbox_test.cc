// The shared memory of the ranks of a host, without a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/peer/mailbox.h"

namespace longspan::comm {
namespace {

using ::testing::HasSubstr;

/// A mapping for each of two ranks, as two processes have them.
class Mailboxes : public ::testing::Test {
 protected:
  void SetUp() override {
    static int count = 0;
    name_ = "/longspan-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
    auto first = Region::create(name_, 2);
    ASSERT_TRUE(first.ok()) << first.error().text();
    auto second = Region::open(name_, 2);
    ASSERT_TRUE(second.ok()) << second.error().text();
    regions_[0] = std::move(first).value();
    regions_[1] = std::move(second).value();
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(regions_[static_cast<size_t>(rank)]->sit(rank).ok());
    }
  }
  void TearDown() override { Region::remove(name_); }

  int post(Mailbox& from, int peer, uint32_t tag, uint64_t bytes) {
    const auto slot = from.take_slot(peer);
    EXPECT_TRUE(slot.ok());
    from.post(peer, *slot, {.tag = tag, .bytes = bytes, .data = {}});
    return *slot;
  }

  std::string name_;
  std::array<std::unique_ptr<Region>, 2> regions_;
};

TEST_F(Mailboxes, OffersOfATagAreFoundInOrderOfPosting) {
  Mailbox owner(*regions_[0], 0);
  Mailbox sender(*regions_[1], 1);
  EXPECT_LT(sender.find(0, 7).slot, 0);
  const int first = post(owner, 1, 7, 10);
  const int other = post(owner, 1, 8, 20);
  const int second = post(owner, 1, 7, 30);
  EXPECT_LT(sender.find(0, 7).slot, 0);
  sender.look();
  EXPECT_EQ(sender.find(0, 8).slot, other);
  EXPECT_EQ(sender.find(0, 7).slot, first);
  EXPECT_EQ(sender.find(0, 7).letter.bytes, 10u);
  EXPECT_EQ(owner.state(1, first), Mail::kPosted);
  sender.take(0, first);
  EXPECT_EQ(owner.state(1, first), Mail::kTaken);
  EXPECT_EQ(sender.find(0, 7).slot, second);
  sender.refuse(0, second, 31);
  EXPECT_EQ(owner.state(1, second), Mail::kRefused);
  EXPECT_EQ(owner.sent(1, second), 31u);
  EXPECT_LT(sender.find(0, 7).slot, 0);
}

TEST_F(Mailboxes, AClaimedOfferIsFoundNoMoreAndTakenOnceConfirmed) {
  Mailbox owner(*regions_[0], 0);
  Mailbox borrower(*regions_[1], 1);
  const int keys = post(owner, 1, 7, 10);
  const int values = post(owner, 1, 7, 20);
  borrower.look();
  borrower.claim(0, keys);
  EXPECT_EQ(owner.state(1, keys), Mail::kPosted);
  EXPECT_EQ(borrower.find(0, 7).slot, values);
  borrower.claim(0, values);
  EXPECT_LT(borrower.find(0, 7).slot, 0);
  borrower.confirm(0, keys);
  EXPECT_EQ(owner.state(1, keys), Mail::kTaken);
  EXPECT_EQ(owner.state(1, values), Mail::kPosted);
}

TEST_F(Mailboxes, SlotsAreReusedAndRunOutWithARemedy) {
  Mailbox owner(*regions_[0], 0);
  Mailbox sender(*regions_[1], 1);
  for (int round = 0; round < 3 * kSlots; ++round) {
    const int slot = post(owner, 1, 1, static_cast<uint64_t>(round));
    sender.look();
    const auto offer = sender.find(0, 1);
    ASSERT_EQ(offer.slot, slot);
    ASSERT_EQ(offer.letter.bytes, static_cast<uint64_t>(round));
    sender.take(0, slot);
    owner.give_back(1, slot);
  }
  for (int slot = 0; slot < kSlots; ++slot) ASSERT_TRUE(owner.take_slot(1).ok());
  const auto none = owner.take_slot(1);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(none.error().message, HasSubstr("capture less often"));
}

TEST_F(Mailboxes, ThreadsPassOffersInOrder) {
  constexpr uint64_t kOffers = 20000;
  std::thread sending([this] {
    Mailbox sender(*regions_[1], 1);
    for (uint64_t i = 0; i < kOffers; ++i) {
      Mailbox::Offer offer = sender.find(0, 1);
      while (offer.slot < 0) {
        std::this_thread::yield();
        sender.look();
        offer = sender.find(0, 1);
      }
      ASSERT_EQ(offer.letter.bytes, i);
      sender.take(0, offer.slot);
    }
  });
  Mailbox owner(*regions_[0], 0);
  std::vector<int> flying;
  for (uint64_t i = 0; i < kOffers; ++i) {
    flying.push_back(post(owner, 1, 1, i));
    if (flying.size() < 16) continue;
    for (const int slot : flying) {
      while (owner.state(1, slot) != Mail::kTaken) std::this_thread::yield();
      owner.give_back(1, slot);
    }
    flying.clear();
  }
  sending.join();
}

TEST_F(Mailboxes, TheFirstReasonForLeavingCounts) {
  EXPECT_FALSE(regions_[0]->departed(1).has_value());
  EXPECT_FALSE(regions_[0]->lost(1).has_value());
  regions_[1]->leave(1, Card::kGaveUp, "no room");
  regions_[1]->leave(1, Card::kReleased, "destroyed");
  regions_[1].reset();
  EXPECT_THAT(regions_[0]->departed(1)->message, HasSubstr("rank 1 left: no room"));
  EXPECT_THAT(regions_[0]->lost(1)->message, HasSubstr("no room"));
}

TEST_F(Mailboxes, WhoReleasesItsCommunicatorDepartsAndIsNotLost) {
  regions_[1]->leave(1, Card::kReleased, "destroyed");
  regions_[1].reset();
  EXPECT_TRUE(regions_[0]->departed(1).has_value());
  EXPECT_FALSE(regions_[0]->lost(1).has_value());
}

TEST_F(Mailboxes, AProcessThatEndsWithoutAWordIsLostEvenBeforeItsParentLooks) {
  regions_[1].reset();
  const pid_t child = fork();
  if (child == 0) {
    const auto own = Region::open(name_, 2);
    if (!own.ok() || !(*own)->sit(1).ok()) _exit(1);
    (*own)->card(1).process = 1;
    pause();
  }
  while (regions_[0]->card(1).process == 0) std::this_thread::yield();
  EXPECT_FALSE(regions_[0]->lost(1).has_value());
  kill(child, SIGKILL);
  while (!regions_[0]->lost(1).has_value()) std::this_thread::yield();
  EXPECT_EQ(regions_[0]->lost(1)->code, ErrorCode::kPeerLost);
  EXPECT_THAT(regions_[0]->lost(1)->message, HasSubstr("rank 1 left: its process ended"));
  waitpid(child, nullptr, 0);
}

TEST_F(Mailboxes, ANameIsMadeOnceAndRemovedNamesAreNotFound) {
  EXPECT_FALSE(Region::create(name_, 2).ok());
  Region::remove(name_);
  const auto gone = Region::open(name_, 2);
  ASSERT_FALSE(gone.ok());
  EXPECT_THAT(gone.error().message, HasSubstr(name_));
}

TEST(Regions, ThatCannotBeMadeLeaveNothingBehind) {
  const std::string name = "/longspan-test-large-" + std::to_string(getpid());
  const auto large = Region::create(name, 50'000);  // more than can be addressed
  ASSERT_FALSE(large.ok());
  const auto opened = Region::open(name, 1);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("opening"));
}

/// The number and the id of a child, which is the first process of a container where `contained`.
std::array<uint64_t, 2> numbers_of_child(bool contained) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t outside = fork();
  if (outside == 0) {
    // Who is no root may do so in a space of users of its own.
    if (contained && unshare(CLONE_NEWPID) != 0) (void)unshare(CLONE_NEWUSER | CLONE_NEWPID);
    const pid_t inside = fork();
    if (inside == 0) {
      const std::array<uint64_t, 2> numbers = {process_number(), static_cast<uint64_t>(getpid())};
      _exit(write(ends[1], numbers.data(), sizeof numbers) == sizeof numbers ? 0 : 1);
    }
    waitpid(inside, nullptr, 0);
    _exit(0);
  }
  std::array<uint64_t, 2> numbers = {};
  EXPECT_EQ(read(ends[0], numbers.data(), sizeof numbers), ssize_t{sizeof numbers});
  waitpid(outside, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return numbers;
}

TEST(ProcessNumber, OfTwoProcessesDiffersWhateverTheirIds) {
  const auto first = numbers_of_child(false);
  const auto second = numbers_of_child(false);
  EXPECT_NE(first[0], second[0]);
  EXPECT_NE(first[0], process_number());
  // Where containers may not be made, these are two more processes.
  const auto one = numbers_of_child(true);
  const auto other = numbers_of_child(true);
  EXPECT_NE(one[0], other[0]) << "ids " << one[1] << " and " << other[1];
}

}  // namespace
}  // namespace longspan::comm
