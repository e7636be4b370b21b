// The list of cases that a calibration times.
#include "calibrate.h"

#include <gtest/gtest.h>

#include "longspan/problem.h"

namespace longspan::tool {
namespace {

TEST(CalibrationCases, AreTheLinesWithoutComments) {
  EXPECT_EQ(case_lines("# one\na=1\r\n\nb=2 c=3"), (std::vector<std::string>{"a=1", "b=2 c=3"}));
  EXPECT_TRUE(case_lines("\n# nothing\n").empty());
}

TEST(CalibrationCases, TheStandardOnesAreDifferentCasesOfATable) {
  RoutingTable table;
  for (const std::string& line : standard_cases()) {
    const auto problem = parse_problem(line);
    ASSERT_TRUE(problem.ok()) << line << ": " << problem.error().text();
    const RoutingCase measured =
        routing_case(*problem, Direction::kForward, {}, problem->lengths.tokens_q);
    table.rows.push_back({.measured = measured, .times = {{"cudnn", 1}, {"hopper", 2}}});
  }
  EXPECT_GT(table.rows.size(), 50u);
  const auto read = RoutingTable::from_json(table.to_json());
  EXPECT_TRUE(read.ok()) << read.error().text();  // which refuses two rows of one case
}

}  // namespace
}  // namespace longspan::tool
