// check() accepts what the strategies build and refuses it with any one defect planted.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "longspan/schedule.h"
#include "schedule/corruptions.h"
#include "strategies/build.h"
#include "testkit/random_problem.h"

namespace longspan::test {
namespace {

Choice random_choice(testkit::Random& random) {
  const std::vector<std::string> both = {"ring", "all_gather", "all_to_all", "hybrid"};
  Choice choice;
  choice.forward = random.one_of(both);
  choice.backward = random.chance(0.3) ? "head_parallel" : random.one_of(both);
  choice.partition = random.one_of(std::array{PartitionKind::kContiguous, PartitionKind::kZigzag,
                                              PartitionKind::kStriped, PartitionKind::kBalanced});
  choice.ranks = static_cast<int>(random.between(1, 8));
  choice.nodes = choice.ranks % 2 == 0 && random.chance(0.6) ? 2 : 1;
  return choice;
}

class Corruptions : public testing::TestWithParam<Corruption> {};

TEST_P(Corruptions, AreRefused) {
  const Corruption& corruption = GetParam();
  constexpr int kSeeds = 100;
  int planted = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    testkit::Random random(seed);
    Problem problem = testkit::random_problem(random);
    if (seed % 4 == 0) problem.sink = Sink::kLearnable;  // enough places for every defect
    if (seed % 4 == 1) problem.max_logit = true;
    const Choice choice = random_choice(random);
    const Setting setting = setting_of(problem, choice);
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      std::vector<Schedule> schedules = schedules_of(setting, direction);
      const Status sound = check(setting, schedules);
      ASSERT_TRUE(sound.ok()) << "seed " << seed << ": " << sound.error().text();
      if (!corruption.plant(schedules, random)) continue;
      ++planted;
      const Status broken = check(setting, schedules);
      ASSERT_FALSE(broken.ok()) << "seed " << seed << ", " << name(direction) << ", "
                                << choice.forward << " and " << choice.backward << ", "
                                << name(choice.partition) << ", " << choice.ranks << " ranks, "
                                << problem.text();
      EXPECT_EQ(broken.error().code, ErrorCode::kInternal);
      EXPECT_EQ(broken.error().where, "schedule");
    }
  }
  EXPECT_GE(planted, 10);
}

std::string name_of(const testing::TestParamInfo<Corruption>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Tiles, Corruptions, testing::ValuesIn(tile_corruptions()), name_of);
INSTANTIATE_TEST_SUITE_P(Messages, Corruptions, testing::ValuesIn(message_corruptions()), name_of);
INSTANTIATE_TEST_SUITE_P(Terms, Corruptions, testing::ValuesIn(term_corruptions()), name_of);
INSTANTIATE_TEST_SUITE_P(Data, Corruptions, testing::ValuesIn(data_corruptions()), name_of);

}  // namespace
}  // namespace longspan::test
