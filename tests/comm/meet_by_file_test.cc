#include "comm/meet_by_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

namespace longspan::comm {
namespace {

using ::testing::HasSubstr;

class MeetByFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  FileMeeting meeting(int rank, int size) const {
    return {.path = (folder_ / "meeting").string(),
            .rank = rank,
            .size = size,
            .deadline = std::chrono::milliseconds(10000)};
  }
  std::filesystem::path file(int rank) const {
    return folder_ / ("meeting." + std::to_string(rank));
  }
  static void expect_bad(const FileMeeting& meeting, ErrorCode code, const char* text) {
    const std::array<uint64_t, 1> mine = {1};
    const auto all = meet_by_file(meeting, mine);
    ASSERT_FALSE(all.ok());
    EXPECT_EQ(all.error().code, code);
    EXPECT_THAT(all.error().message, HasSubstr(text));
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("longspan_meet_" + std::to_string(getpid()));
};

TEST_F(MeetByFile, EveryRankLearnsAllWords) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([this, rank] {
      const std::array<uint64_t, 2> mine = {static_cast<uint64_t>(rank), 7};
      const auto all = meet_by_file(meeting(rank, 4), mine);
      ASSERT_TRUE(all.ok()) << all.error().text();
      EXPECT_THAT(*all, ::testing::ElementsAre(0, 7, 1, 7, 2, 7, 3, 7));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(std::filesystem::exists(file(rank)));
    leave_meeting(meeting(rank, 4));
    EXPECT_FALSE(std::filesystem::exists(file(rank)));
  }
}

TEST_F(MeetByFile, FilesOfOtherMeetingsAreRefused) {
  std::ofstream(file(0)) << "something";
  expect_bad(meeting(0, 2), ErrorCode::kInvalidArgument, "is there already");
  expect_bad(meeting(1, 2), ErrorCode::kInvalidArgument, "of a meeting of other ranks");
  std::filesystem::remove(file(1));
  std::filesystem::last_write_time(
      file(0), std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1));
  expect_bad(meeting(1, 2), ErrorCode::kInvalidArgument, "longer ago");
}

TEST_F(MeetByFile, MissingRanksAreNamed) {
  FileMeeting early = meeting(0, 3);
  early.deadline = std::chrono::milliseconds(30);
  expect_bad(early, ErrorCode::kPeerLost, "rank 1 did not write");
  EXPECT_FALSE(std::filesystem::exists(file(0)));
}

TEST_F(MeetByFile, RanksMayWaitForEver) {
  const std::array<uint64_t, 1> mine = {1};
  std::thread first([&] { EXPECT_TRUE(meet_by_file(meeting(0, 2), mine).ok()); });
  while (!std::filesystem::exists(file(0))) std::this_thread::yield();
  FileMeeting patient = meeting(1, 2);
  patient.deadline = std::chrono::milliseconds::max();
  const auto all = meet_by_file(patient, mine);
  EXPECT_TRUE(all.ok()) << all.error().text();
  first.join();
}

TEST_F(MeetByFile, BadArgumentsAreNamed) {
  expect_bad(meeting(2, 2), ErrorCode::kInvalidArgument, "rank 2 of 2");
  FileMeeting nowhere = meeting(0, 1);
  nowhere.path = "/nowhere/at/all";
  expect_bad(nowhere, ErrorCode::kInvalidArgument, "cannot write /nowhere/at/all.0");
}

}  // namespace
}  // namespace longspan::comm
