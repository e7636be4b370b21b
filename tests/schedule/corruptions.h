// Defects to plant into valid schedules.
#pragma once

#include <string_view>
#include <vector>

#include "longspan/schedule.h"
#include "testkit/random_problem.h"

namespace longspan::test {

struct Corruption {
  std::string_view name;
  /// Plants the defect somewhere; false when these schedules offer no place where it would matter.
  bool (*plant)(std::vector<Schedule>& schedules, testkit::Random& random);
};

std::vector<Corruption> tile_corruptions();
std::vector<Corruption> message_corruptions();
std::vector<Corruption> data_corruptions();  // buffers, copies and fills
std::vector<Corruption> term_corruptions();  // sinks, largest logits, alignment

/// Takes a step out; nothing waits for it any more.
void remove_step(Schedule& schedule, StepId id);
/// Puts a step in front of step `id`.
void insert_step(Schedule& schedule, StepId id, Step step);

}  // namespace longspan::test
