// Where defects can be planted.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/corruptions.h"

namespace longspan::test {

using testkit::Random;
using Schedules = std::vector<Schedule>;

/// Somewhere in the schedules: a rank, a step, and an index into one of the step's lists.
struct Spot {
  Schedule* schedule = nullptr;
  StepId step = 0;
  size_t index = 0;
  size_t part = 0;

  Step& at() const { return schedule->steps[static_cast<size_t>(step)]; }
  Buffer& buffer(BufferId id) const { return schedule->buffers[static_cast<size_t>(id)]; }
};

/// All spots that `list` yields for a step: a list of indices that fit.
template <class F>
std::vector<Spot> spots(Schedules& schedules, F fits) {
  std::vector<Spot> result;
  for (Schedule& schedule : schedules) {
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      fits(Spot{&schedule, static_cast<StepId>(i)}, result);
    }
  }
  return result;
}

template <class F>
std::vector<Spot> messages(Schedules& schedules, F fits) {
  return spots(schedules, [&](Spot spot, std::vector<Spot>& result) {
    for (spot.index = 0; spot.index < spot.at().messages.size(); ++spot.index) {
      if (fits(spot.at().messages[spot.index])) result.push_back(spot);
    }
  });
}

template <class F>
std::vector<Spot> copies(Schedules& schedules, F fits) {
  return spots(schedules, [&](Spot spot, std::vector<Spot>& result) {
    for (spot.index = 0; spot.index < spot.at().copies.size(); ++spot.index) {
      if (fits(spot, spot.at().copies[spot.index])) result.push_back(spot);
    }
  });
}

template <class F>
std::vector<Spot> fills(Schedules& schedules, F fits) {
  return spots(schedules, [&](Spot spot, std::vector<Spot>& result) {
    for (spot.index = 0; spot.index < spot.at().fills.size(); ++spot.index) {
      if (spot.at().kind != StepKind::kFill) continue;  // sinks name rows likewise
      if (fits(spot, spot.at().fills[spot.index])) result.push_back(spot);
    }
  });
}

inline std::vector<Spot> tiles(Schedules& schedules) {
  return spots(schedules, [](Spot spot, std::vector<Spot>& result) {
    for (spot.part = 0; spot.part < spot.at().parts.size(); ++spot.part) {
      const size_t count = spot.at().parts[spot.part].tiles.size();
      for (spot.index = 0; spot.index < count; ++spot.index) result.push_back(spot);
    }
  });
}

inline PlacedTile& tile_at(const Spot& spot) {
  return spot.at().parts[spot.part].tiles[spot.index];
}

template <class T>
void take_out(std::vector<T>& list, size_t index) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
}

/// Takes an entry out of its step, and the step with its last one.
template <class T>
void take_out(const Spot& spot, std::vector<T> Step::*list) {
  std::vector<T>& entries = spot.at().*list;
  take_out(entries, spot.index);
  if (entries.empty()) remove_step(*spot.schedule, spot.step);
}

}  // namespace longspan::test
