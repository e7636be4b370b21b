// Transfers that run one after the other: which orders are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "schedule/check.h"

namespace longspan::test {
namespace {

using testing::HasSubstr;

Message to(int peer, uint32_t tag = 1) {
  return {.kind = TransferKind::kSend, .peer = peer, .tag = tag};
}
Message from(int peer, uint32_t tag = 1) {
  return {.kind = TransferKind::kRecv, .peer = peer, .tag = tag};
}

using Steps = std::vector<std::vector<Message>>;

/// One schedule for each rank, of transfer steps alone.
std::vector<Schedule> ranks(std::vector<Steps> all) {
  std::vector<Schedule> schedules;
  for (Steps& steps : all) {
    Schedule schedule{.rank = static_cast<int>(schedules.size()),
                      .ranks = static_cast<int>(all.size())};
    for (std::vector<Message>& messages : steps) {
      schedule.steps.push_back(
          {.kind = StepKind::kAllToAll, .lane = Lane::kTransfer, .messages = std::move(messages)});
    }
    schedules.push_back(std::move(schedule));
  }
  return schedules;
}

std::string verdict(const std::vector<Schedule>& schedules) {
  const Status status = proof::check_in_order(schedules);
  return status.ok() ? "sound" : status.error().message;
}

TEST(InOrder, ARotationNeedsBothSidesInOneStep) {
  EXPECT_EQ(verdict(ranks({{{from(2), to(1)}}, {{from(0), to(2)}}, {{from(1), to(0)}}})), "sound");
  EXPECT_THAT(verdict(ranks({{{from(2)}, {to(1)}}, {{from(0)}, {to(2)}}, {{from(1)}, {to(0)}}})),
              HasSubstr("rank 0, step 0 (all_to_all): deadlock"));
  EXPECT_THAT(verdict(ranks({{{to(1)}, {from(2)}}, {{to(2)}, {from(0)}}, {{to(0)}, {from(1)}}})),
              HasSubstr("deadlock"));
  // One rank that does it the other way round opens the circle.
  EXPECT_EQ(verdict(ranks({{{from(2)}, {to(1)}}, {{to(2)}, {from(0)}}, {{from(1)}, {to(0)}}})),
            "sound");
}

TEST(InOrder, StepsThatMeetInTurnsAreACircle) {
  EXPECT_THAT(verdict(ranks({{{to(1)}, {to(2)}}, {{from(2)}, {from(0)}}, {{from(0)}, {to(1)}}})),
              HasSubstr("deadlock"));
}

TEST(InOrder, MessagesOfAPairComeInOneOrder) {
  EXPECT_EQ(verdict(ranks({{{to(1, 5)}, {to(1, 4)}}, {{from(0, 5)}, {from(0, 4)}}})), "sound");
  EXPECT_THAT(verdict(ranks({{{to(1, 5)}, {to(1, 4)}}, {{from(0, 4)}, {from(0, 5)}}})),
              HasSubstr("rank 1, step 0 (all_to_all): expects a message of rank 0 with tag 4 in "
                        "another order"));
  // Inside a step the tag decides, on both sides.
  EXPECT_EQ(verdict(ranks({{{to(1, 5), to(1, 4)}}, {{from(0, 4), from(0, 5)}}})), "sound");
  EXPECT_EQ(verdict(ranks({{{to(1, 5), to(1, 4)}}, {{from(0, 4)}, {from(0, 5)}}})), "sound");
  EXPECT_THAT(verdict(ranks({{{to(1, 5), to(1, 4)}}, {{from(0, 5)}, {from(0, 4)}}})),
              HasSubstr("another order"));
}

TEST(InOrder, HostsThatWaitForATransferPostNothingBehindIt) {
  std::vector<Schedule> schedules = ranks({{{to(1, 1)}, {from(1, 2)}}, {{to(0, 2)}, {from(0, 1)}}});
  EXPECT_THAT(verdict(schedules), HasSubstr("deadlock"));
  schedules = ranks({{{to(1, 1), from(1, 2)}}, {{to(0, 2)}, {from(0, 1)}}});
  EXPECT_EQ(verdict(schedules), "sound");
  schedules[0].steps[0].messages.pop_back();
  schedules[0].steps.push_back(
      {.kind = StepKind::kAllToAll, .lane = Lane::kTransfer, .messages = {from(1, 2)}});
  std::swap(schedules[0].steps[0], schedules[0].steps[1]);
  EXPECT_EQ(verdict(schedules), "sound");
}

TEST(InOrder, AMessageWithoutItsOtherSideIsNamed) {
  EXPECT_THAT(verdict(ranks({{{to(1)}}, {}})), HasSubstr("rank 0, step 0"));
}

}  // namespace
}  // namespace longspan::test
