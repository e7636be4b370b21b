// Starts MPI jobs in which a process is killed, gives up or disagrees, and reads what the others
// report. LONGSPAN_MPIRUN is the route under which survivors live on (docs/guides/mpi.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <regex>
#include <string>

namespace longspan::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kDeadlineMs = 2500;  // of mpi_survivor
constexpr int kSlackMs = 4000;     // a loaded machine; far below the survivors' patience of 40 s

struct Report {
  std::string code;
  int ms = 0;
  std::string text;
};

struct Job {
  std::map<int, Report> reports;
  int left = 0;  // processes that came to their end by themselves
  int status = -1;
  std::string output;
};

Job run(int ranks, const std::string& scene, const std::string& options = "") {
  const std::string command = "timeout -k 5 60 " LONGSPAN_MPIRUN " " + options + " -np " +
                              std::to_string(ranks) + " " LONGSPAN_MPI_SURVIVOR " " + scene +
                              " 2>&1";
  Job job;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return job;
  std::array<char, 4096> line;
  const std::regex report("rank=(\\d+) code=(\\w+) ms=(\\d+) text=(.*)\n?");
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    const std::string text = line.data();
    job.output += text;
    if (text.starts_with("left=")) ++job.left;
    std::smatch match;
    if (!std::regex_search(text, match, report)) continue;
    job.reports[std::stoi(match[1])] = {match[2], std::stoi(match[3]), match[4]};
  }
  job.status = pclose(pipe);
  return job;
}

/// Every rank but 1, which was killed, reports peer_lost in time and comes to its own end.
void expect_survivors(const Job& job, int ranks) {
  EXPECT_EQ(job.status, 0) << job.output;  // 124 would be a job that hangs
  EXPECT_EQ(job.left, ranks - 1) << job.output;
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(job.reports.contains(rank), rank != 1) << "rank " << rank << "\n" << job.output;
    if (rank == 1) continue;
    const Report& report = job.reports.at(rank);
    EXPECT_EQ(report.code, "peer_lost") << job.output;
    EXPECT_THAT(report.text, HasSubstr("rank 1")) << job.output;
    EXPECT_LT(report.ms, kDeadlineMs + kSlackMs) << job.output;
  }
}

TEST(MpiFailures, KilledAmongTwo) { expect_survivors(run(2, "kill_small"), 2); }
TEST(MpiFailures, KilledAmongFour) { expect_survivors(run(4, "kill_small"), 4); }
TEST(MpiFailures, KilledDuringLargeMessages) { expect_survivors(run(4, "kill_large"), 4); }
/// NOTE: over TCP with Open MPI 4.1 a survivor now and then ends without a report
/// (docs/guides/mpi.md). What holds there: nobody hangs, and whoever lives reports in time. The
/// lost rank that is named need not be 1 then.
TEST(MpiFailures, KilledOverTcpNobodyHangs) {
  const Job job = run(4, "kill_large", "--mca btl tcp,self");
  EXPECT_EQ(job.status, 0) << job.output;
  EXPECT_EQ(job.left, static_cast<int>(job.reports.size())) << job.output;
  EXPECT_FALSE(job.reports.contains(1)) << job.output;
  EXPECT_FALSE(job.reports.empty()) << job.output;
  for (const auto& [rank, report] : job.reports) {
    EXPECT_EQ(report.code, "peer_lost") << job.output;
    EXPECT_LT(report.ms, kDeadlineMs + kSlackMs) << job.output;
  }
}

/// Only rank 0 waits for the dead one; its notice ends the others long before their own deadline.
TEST(MpiFailures, NoticeOfALostRankReachesThoseWhoWaitForOthers) {
  const Job job = run(4, "kill_chain");
  expect_survivors(job, 4);
  ASSERT_EQ(job.reports.size(), 3u);
  EXPECT_THAT(job.reports.at(2).text, HasSubstr("rank 0 left: peer_lost"));
  EXPECT_THAT(job.reports.at(3).text, HasSubstr("rank 0 left: peer_lost"));
}

TEST(MpiFailures, AbandonReachesAllAtOnceWithTheReason) {
  const Job job = run(4, "abandon");
  ASSERT_EQ(job.reports.size(), 4u) << job.output;
  EXPECT_EQ(job.left, 4) << job.output;
  for (const auto& [rank, report] : job.reports) {
    EXPECT_LT(report.ms, kSlackMs) << job.output;
    EXPECT_EQ(report.code, rank == 1 ? "out_of_memory" : "peer_lost");
    if (rank == 1) continue;
    EXPECT_THAT(report.text, AllOf(HasSubstr("rank 1 left"), HasSubstr("no room for 12 bytes")));
  }
}

TEST(MpiFailures, SizeMismatchNamesBothSizesOnBothSides) {
  for (const auto& [scene, sent, expected] :
       {std::tuple("small_mismatch", "100", "200"), {"large_mismatch", "3145728", "1048576"}}) {
    const Job job = run(2, scene);
    ASSERT_EQ(job.reports.size(), 2u) << job.output;
    for (const auto& [rank, report] : job.reports) {
      EXPECT_EQ(report.code, "invalid_argument") << job.output;
      EXPECT_THAT(report.text, AllOf(HasSubstr(std::string("rank 0 sends ") + sent + " bytes"),
                                     HasSubstr(std::string("rank 1 expects ") + expected)));
      EXPECT_LT(report.ms, kSlackMs) << job.output;
    }
  }
}

TEST(MpiFailures, DeadlineNamesThePeer) {
  const Job job = run(2, "late");
  ASSERT_TRUE(job.reports.contains(0)) << job.output;
  EXPECT_EQ(job.reports.at(0).code, "peer_lost");
  EXPECT_THAT(job.reports.at(0).text, HasSubstr("rank 1 did not send 8 bytes"));
  EXPECT_GE(job.reports.at(0).ms, kDeadlineMs);
}

}  // namespace
}  // namespace longspan::test
