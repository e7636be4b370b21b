#include "schedule/spots.h"

namespace longspan::test {
namespace {

/// A step of the kinds, any rank.
bool random_step(Schedules& schedules, Random& random, std::initializer_list<StepKind> kinds,
                 Spot& found) {
  const auto all = spots(schedules, [&](Spot spot, std::vector<Spot>& result) {
    for (const StepKind kind : kinds) {
      if (spot.at().kind == kind) result.push_back(spot);
    }
  });
  if (all.empty()) return false;
  found = random.one_of(all);
  return true;
}

constexpr std::initializer_list<StepKind> kSinks = {StepKind::kSink, StepKind::kSinkGradient};

bool dropped_sink(Schedules& schedules, Random& random) {
  Spot spot;
  if (!random_step(schedules, random, {StepKind::kSink}, spot)) return false;
  remove_step(*spot.schedule, spot.step);
  return true;
}

bool repeated_sink(Schedules& schedules, Random& random) {
  Spot spot;
  if (!random_step(schedules, random, kSinks, spot)) return false;
  insert_step(*spot.schedule, spot.step, Step(spot.at()));
  return true;
}

bool sink_leaves_a_row_out(Schedules& schedules, Random& random) {
  Spot spot;
  if (!random_step(schedules, random, kSinks, spot)) return false;
  Fill& fill = spot.at().fills.back();
  if (--fill.rows == 0) spot.at().fills.pop_back();
  if (spot.at().fills.empty()) remove_step(*spot.schedule, spot.step);
  return spot.schedule->direction == Direction::kForward || !spot.schedule->steps.empty();
}

bool sink_before_the_tiles(Schedules& schedules, Random& random) {
  Spot spot;
  if (!random_step(schedules, random, {StepKind::kAttend}, spot)) return false;
  Schedule& schedule = *spot.schedule;
  for (StepId id = spot.step; id < static_cast<StepId>(schedule.steps.size()); ++id) {
    if (schedule.steps[static_cast<size_t>(id)].kind != StepKind::kSink) continue;
    Step sink = schedule.steps[static_cast<size_t>(id)];
    remove_step(schedule, id);
    insert_step(schedule, spot.step, std::move(sink));
    return true;
  }
  return false;
}

bool lost_maximum(Schedules& schedules, Random& random) {
  Spot spot;
  if (!random_step(schedules, random, {StepKind::kMaximum}, spot)) return false;
  std::vector<Copy>& copies = spot.at().copies;
  copies.pop_back();
  if (copies.empty()) remove_step(*spot.schedule, spot.step);
  return true;
}

bool unraised_maximum(Schedules& schedules, Random& random) {
  Spot spot;
  if (!random_step(schedules, random, {StepKind::kAttend}, spot)) return false;
  if (spot.at().max_logit == kNone) return false;
  spot.at().max_logit = kNone;
  return true;
}

bool wrong_shift(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  tile_at(random.one_of(all)).shift += random.chance(0.5) ? 1 : -1;
  return true;
}

bool lost_feature(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  Features& features = random.one_of(all).schedule->tiles.features;
  bool& one = random.chance(0.5) ? features.window : features.dropout;
  one = !one;
  return true;
}

}  // namespace

std::vector<Corruption> term_corruptions() {
  return {
      {"lost_feature", lost_feature},
      {"dropped_sink", dropped_sink},
      {"repeated_sink", repeated_sink},
      {"sink_leaves_a_row_out", sink_leaves_a_row_out},
      {"sink_before_the_tiles", sink_before_the_tiles},
      {"lost_maximum", lost_maximum},
      {"unraised_maximum", unraised_maximum},
      {"wrong_shift", wrong_shift},
  };
}

}  // namespace longspan::test
