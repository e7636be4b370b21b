// Engines in MPI jobs in which a process is killed, or in which ranks mean different things.
// LONGSPAN_MPIRUN is the route under which survivors live on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <regex>
#include <string>

#include "testkit/pairs.h"

namespace longspan::testkit {
namespace {

using ::testing::HasSubstr;

constexpr int kDeadlineMs = 2500;  // of mpi_scene
constexpr int kSlackMs = 8000;     // start, three rounds, and a loaded machine

struct Report {
  std::string code;
  int ms = 0;
  std::string text;
};

struct Job {
  std::map<int, Report> reports;
  int status = -1;
  std::string output;
};

Job run(int ranks, const std::string& scene) {
  const std::string command = "timeout -k 5 90 " LONGSPAN_MPIRUN " -np " + std::to_string(ranks) +
                              " " LONGSPAN_MPI_SCENE " " + scene + " 2>&1";
  Job job;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return job;
  std::array<char, 4096> line;
  const std::regex report("rank=(\\d+) code=(\\w+) ms=(\\d+) text=(.*)\n?");
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    const std::string text = line.data();
    job.output += text;
    std::smatch match;
    if (!std::regex_search(text, match, report)) continue;
    job.reports[std::stoi(match[1])] = {match[2], std::stoi(match[3]), match[4]};
  }
  job.status = pclose(pipe);
  return job;
}

class MpiKilled : public testing::TestWithParam<StrategyPair> {};

TEST_P(MpiKilled, SurvivorsGetPeerLostWithinTheDeadline) {
  for (const int ranks : {2, 4}) {
    const Job job = run(ranks, "kill:" + GetParam().forward + ":" + GetParam().backward);
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(job.reports.contains(rank), rank != 1) << "rank " << rank << "\n" << job.output;
      if (rank == 1) continue;
      EXPECT_EQ(job.reports.at(rank).code, "peer_lost") << job.output;
      EXPECT_LT(job.reports.at(rank).ms, kDeadlineMs + kSlackMs) << job.output;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, MpiKilled, testing::ValuesIn(diagonal_pairs()));

class MpiDiffer : public testing::TestWithParam<const char*> {};

TEST_P(MpiDiffer, EveryRankNamesTheField) {
  const std::string field = GetParam();
  for (const int ranks : {2, 4}) {
    const Job job = run(ranks, "differ:" + field);
    EXPECT_EQ(job.status, 0) << job.output;
    ASSERT_EQ(job.reports.size(), static_cast<size_t>(ranks)) << job.output;
    for (const auto& [rank, report] : job.reports) {
      EXPECT_EQ(report.code, "invalid_argument") << "rank " << rank << "\n" << job.output;
      EXPECT_THAT(report.text, HasSubstr("ranks disagree on " + field + ": rank 1 differs"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fields, MpiDiffer,
                         testing::Values("dtype", "lengths", "scale", "partition"));

}  // namespace
}  // namespace longspan::testkit
