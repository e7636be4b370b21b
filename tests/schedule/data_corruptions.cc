#include <algorithm>
#include <utility>

#include "schedule/spots.h"

namespace longspan::test {
namespace {

std::vector<BufferId> workspace_of(const Spot& spot) {
  std::vector<BufferId> ids;
  const Step& step = spot.at();
  const auto add = [&](BufferId id) {
    if (id == kNone) return;
    const Buffer& buffer = spot.buffer(id);
    const bool known = std::find(ids.begin(), ids.end(), id) != ids.end();
    if (buffer.space == Space::kWorkspace && buffer.bytes() > 0 && !known) ids.push_back(id);
  };
  const bool forward = step.kind == StepKind::kAttend;
  if (forward) add(step.o);
  if (!step.parts.empty()) {
    add(step.lse);
    add(forward ? kNone : step.dq);
    for (const Part& part : step.parts) add(part.k);
  }
  for (const Copy& copy : step.copies) add(copy.dst);
  for (const Message& message : step.messages) add(message.buffers.front());
  return ids;
}

/// A buffer moves onto another one that the same step uses.
bool use_after_free(Schedules& schedules, Random& random) {
  const auto all = spots(schedules, [](Spot spot, std::vector<Spot>& result) {
    if (workspace_of(spot).size() >= 2) result.push_back(spot);
  });
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  const std::vector<BufferId> ids = workspace_of(spot);
  const int64_t from = spot.buffer(ids[1]).offset;
  const int64_t to = spot.buffer(ids[0]).offset;
  spot.schedule->workspace_bytes += spot.buffer(ids[1]).bytes();
  spot.buffer(ids[1]).offset = to;
  return from != to;
}

bool accumulates(const Spot& spot, const Copy&) { return spot.at().kind == StepKind::kAccumulate; }

bool swapped_accumulate_source(Schedules& schedules, Random& random) {
  const auto all = copies(schedules, accumulates);
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  Copy& one = spot.at().copies[spot.index];
  for (Copy& other : spot.at().copies) {
    if (spot.buffer(other.src).quantity == spot.buffer(one.src).quantity) continue;
    std::swap(one.src, other.src);
    return true;
  }
  return false;
}

bool doubled_accumulate(Schedules& schedules, Random& random) {
  const auto all = copies(schedules, accumulates);
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  if (random.chance(0.5)) {
    const Copy again = spot.at().copies[spot.index];
    spot.at().copies.push_back(again);
  } else {
    insert_step(*spot.schedule, spot.step + 1, Step(spot.at()));
  }
  return true;
}

/// A partial result that has arrived is not added.
bool lost_partial(Schedules& schedules, Random& random) {
  const auto arrived = [](const Spot& spot, BufferId id) {
    for (const Step& step : spot.schedule->steps) {
      for (const Message& message : step.messages) {
        const std::vector<BufferId>& ids = message.buffers;
        const bool here = std::find(ids.begin(), ids.end(), id) != ids.end();
        if (here && message.kind == TransferKind::kRecv) return true;
      }
    }
    return false;
  };
  const auto all = copies(schedules, [&](const Spot& spot, const Copy& copy) {
    return spot.at().kind == StepKind::kAccumulate && arrived(spot, copy.src);
  });
  if (all.empty()) return false;
  take_out(random.one_of(all), &Step::copies);
  return true;
}

bool copy_of_wrong_row(Schedules& schedules, Random& random) {
  const auto all = copies(schedules, [](const Spot&, const Copy&) { return true; });
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  Copy& copy = spot.at().copies[spot.index];
  int64_t& row = random.chance(0.5) ? copy.src_row : copy.dst_row;
  row += random.chance(0.5) ? 1 : -1;
  return true;
}

bool missing_result(Schedules& schedules, Random& random) {
  const auto all = copies(schedules, [](const Spot& spot, const Copy& copy) {
    return spot.buffer(copy.dst).space == Space::kOperand;
  });
  if (all.empty()) return false;
  take_out(random.one_of(all), &Step::copies);
  return true;
}

bool missing_output_fill(Schedules& schedules, Random& random) {
  const auto all = fills(schedules, [](const Spot& spot, const Fill& fill) {
    return spot.buffer(fill.buffer).space == Space::kOperand;
  });
  if (all.empty()) return false;
  take_out(random.one_of(all), &Step::fills);
  return true;
}

bool missing_accumulator_fill(Schedules& schedules, Random& random) {
  const auto all = fills(schedules, [](const Spot& spot, const Fill& fill) {
    const Buffer& buffer = spot.buffer(fill.buffer);
    const bool holds = std::any_of(buffer.runs.begin(), buffer.runs.end(),
                                   [](const Run& run) { return run.valid > 0; });
    return buffer.space == Space::kWorkspace && holds;
  });
  if (all.empty()) return false;
  take_out(random.one_of(all), &Step::fills);
  return true;
}

bool output_written_twice(Schedules& schedules, Random& random) {
  const auto all = copies(schedules, [](const Spot& spot, const Copy& copy) {
    return spot.buffer(copy.dst).space == Space::kOperand;
  });
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  const Copy copy = spot.at().copies[spot.index];
  insert_step(*spot.schedule, spot.step,
              {.kind = StepKind::kFill, .fills = {{copy.dst, copy.dst_row, 1}}});
  return true;
}

bool wrong_head_offset(Schedules& schedules, Random& random) {
  const auto all = copies(schedules, [](const Spot& spot, const Copy& copy) {
    return copy.dst_head + copy.heads < spot.buffer(copy.dst).heads ||
           copy.src_head + copy.heads < spot.buffer(copy.src).heads;
  });
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  Copy& copy = spot.at().copies[spot.index];
  const bool source = copy.src_head + copy.heads < spot.buffer(copy.src).heads;
  ++(source ? copy.src_head : copy.dst_head);
  return true;
}

}  // namespace

std::vector<Corruption> data_corruptions() {
  return {
      {"use_after_free", use_after_free},
      {"swapped_accumulate_source", swapped_accumulate_source},
      {"doubled_accumulate", doubled_accumulate},
      {"lost_partial", lost_partial},
      {"copy_of_wrong_row", copy_of_wrong_row},
      {"missing_result", missing_result},
      {"missing_output_fill", missing_output_fill},
      {"missing_accumulator_fill", missing_accumulator_fill},
      {"output_written_twice", output_written_twice},
      {"wrong_head_offset", wrong_head_offset},
  };
}

}  // namespace longspan::test
