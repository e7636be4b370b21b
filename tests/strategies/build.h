// Settings and schedules of all ranks, for tests of strategies.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longspan/schedule.h"

namespace longspan::test {

struct Choice {
  std::string forward = "ring";
  std::string backward = "ring";
  PartitionKind partition = PartitionKind::kContiguous;
  int ranks = 1;
  int nodes = 1;
};

inline Setting setting_of(Problem problem, const Choice& choice) {
  Result<Partition> partition = Partition::make(problem, choice.partition, choice.ranks);
  if (!partition.ok()) throw std::logic_error(partition.error().text());
  return {std::move(problem), std::move(partition).value(),
          Topology::blocks(choice.ranks, choice.nodes), choice.forward, choice.backward};
}

inline Setting setting_of(std::string_view text, const Choice& choice) {
  Result<Problem> problem = parse_problem(text);
  if (!problem.ok()) throw std::logic_error(problem.error().text());
  return setting_of(std::move(problem).value(), choice);
}

inline const Strategy& strategy_of(const Setting& setting, Direction direction) {
  return **find_strategy(direction == Direction::kForward ? setting.forward : setting.backward);
}

inline std::vector<Schedule> schedules_of(const Setting& setting, Direction direction) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < setting.topology.ranks(); ++rank) {
    Result<Schedule> schedule = strategy_of(setting, direction).build(setting, direction, rank);
    if (!schedule.ok()) throw std::logic_error(schedule.error().text());
    schedules.push_back(std::move(schedule).value());
  }
  return schedules;
}

}  // namespace longspan::test
