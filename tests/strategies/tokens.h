// Rows seen as the tokens that they hold, for tests of the geometry of groups.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "strategies/group.h"
#include "testkit/random_problem.h"

namespace longspan::test {

inline constexpr PartitionKind kKinds[] = {PartitionKind::kContiguous, PartitionKind::kZigzag,
                                           PartitionKind::kStriped, PartitionKind::kBalanced};

using Token = std::pair<int32_t, int64_t>;  // sequence and position

/// The token of every row; rows of no run hold none.
inline std::map<int64_t, Token> tokens_of(const Rows& rows) {
  std::map<int64_t, Token> tokens;
  for (const longspan::Run& run : rows.runs) {
    EXPECT_EQ(run.valid, run.tokens.size()) << "valid tokens alone";
    for (int64_t i = 0; i < run.valid; ++i) {
      EXPECT_LT(run.row + i, rows.rows);
      EXPECT_TRUE(tokens.emplace(run.row + i, Token{run.sequence, run.tokens.at(i)}).second);
    }
  }
  return tokens;
}

inline std::set<Token> set_of(const Rows& rows) {
  std::set<Token> tokens;
  for (const auto& [row, token] : tokens_of(rows)) EXPECT_TRUE(tokens.insert(token).second);
  return tokens;
}

inline void expect_without_gaps(const Rows& rows) {
  int64_t next = 0;
  for (const longspan::Run& run : rows.runs) {
    ASSERT_EQ(run.row, next);
    next += run.valid;
  }
  ASSERT_EQ(rows.rows, next);
}

/// A partition of a random problem.
struct Case {
  Problem problem;
  int ranks = 1;
  PartitionKind kind = PartitionKind::kContiguous;
  Partition partition;

  std::string text() const {
    return problem.text() + " " + std::string(name(kind)) + " " + std::to_string(ranks);
  }
};

inline Case random_case(testkit::Random& random, int64_t longest = 24) {
  Problem problem = testkit::random_problem(random, {.sequences = 4, .length = longest});
  const int ranks = static_cast<int>(random.between(1, 8));
  const PartitionKind kind = random.one_of(kKinds);
  Partition partition = *Partition::make(problem, kind, ranks);
  return {std::move(problem), ranks, kind, std::move(partition)};
}

}  // namespace longspan::test
