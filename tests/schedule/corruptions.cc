#include "schedule/corruptions.h"

#include <algorithm>
#include <utility>

namespace longspan::test {
namespace {

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
      if (fits(spot, spot.at().fills[spot.index])) result.push_back(spot);
    }
  });
}

std::vector<Spot> tiles(Schedules& schedules) {
  return spots(schedules, [](Spot spot, std::vector<Spot>& result) {
    for (spot.part = 0; spot.part < spot.at().parts.size(); ++spot.part) {
      const size_t count = spot.at().parts[spot.part].tiles.size();
      for (spot.index = 0; spot.index < count; ++spot.index) result.push_back(spot);
    }
  });
}

PlacedTile& tile_at(const Spot& spot) { return spot.at().parts[spot.part].tiles[spot.index]; }

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

bool missing_message(Schedules& schedules, Random& random, TransferKind kind) {
  const auto all = messages(schedules, [&](const Message& m) { return m.kind == kind; });
  if (all.empty()) return false;
  take_out(random.one_of(all), &Step::messages);
  return true;
}

bool missing_recv(Schedules& schedules, Random& random) {
  return missing_message(schedules, random, TransferKind::kRecv);
}

bool missing_send(Schedules& schedules, Random& random) {
  return missing_message(schedules, random, TransferKind::kSend);
}

bool duplicate_tile(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  spot.at().parts[spot.part].tiles.push_back(tile_at(spot));
  return true;
}

bool dropped_tile(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  Part& part = spot.at().parts[spot.part];
  take_out(part.tiles, spot.index);
  if (part.tiles.empty()) take_out(spot.at().parts, spot.part);
  if (spot.at().parts.empty()) remove_step(*spot.schedule, spot.step);
  return true;
}

bool misplaced_tile(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  PlacedTile& placed = tile_at(random.one_of(all));
  int64_t& row = random.chance(0.5) ? placed.q_row : placed.k_row;
  row += random.chance(0.5) ? 1 : -1;
  return true;
}

/// The tile is right in itself and lies where its tokens are, but they are others.
bool shifted_tile(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  PlacedTile& placed = tile_at(random.one_of(all));
  Interval& k = placed.tile.k;
  k = {k.begin + k.stride, k.end + k.stride, k.stride};
  ++placed.k_row;
  if (placed.tile.band.lo > -kUnbounded) --placed.tile.band.lo;
  if (placed.tile.band.hi < kUnbounded) --placed.tile.band.hi;
  return true;
}

bool wrong_band(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  Tile& tile = tile_at(random.one_of(all)).tile;
  const int64_t right = area(tile);
  if (random.chance(0.5) && tile.band.hi < kUnbounded) {
    tile.band.hi += random.chance(0.5) ? 1 : -1;
  } else {
    tile.band.hi = tile.k.size() - 2;
  }
  return area(tile) != right;
}

bool wrong_peer(Schedules& schedules, Random& random) {
  const auto all = messages(schedules, [](const Message&) { return true; });
  const auto ranks = static_cast<int>(schedules.size());
  if (all.empty() || ranks < 3) return false;
  const Spot spot = random.one_of(all);
  int& peer = spot.at().messages[spot.index].peer;
  const int right = peer;
  while (peer == right || peer == spot.schedule->rank) {
    peer = static_cast<int>(random.between(0, ranks - 1));
  }
  return true;
}

bool wrong_tag(Schedules& schedules, Random& random) {
  const auto all = messages(schedules, [](const Message&) { return true; });
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  spot.at().messages[spot.index].tag += static_cast<uint32_t>(random.between(1, 5));
  return true;
}

bool wrong_bytes(Schedules& schedules, Random& random) {
  const auto all = messages(schedules, [](const Message&) { return true; });
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  spot.at().messages[spot.index].bytes += random.chance(0.5) ? 16 : -16;
  return true;
}

/// One side means other rows: sizes still agree.
bool wrong_rows_in_message(Schedules& schedules, Random& random) {
  const auto all = messages(schedules, [](const Message&) { return true; });
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  Buffer& buffer = spot.buffer(spot.at().messages[spot.index].buffers.front());
  for (Run& run : buffer.runs) {
    run.tokens.begin += run.tokens.stride;
    run.tokens.end += run.tokens.stride;
  }
  return true;
}

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

/// Nothing waits for a message any more.
bool dropped_edge(Schedules& schedules, Random& random) {
  const auto all =
      messages(schedules, [](const Message& m) { return m.kind == TransferKind::kRecv; });
  if (all.empty()) return false;
  const Spot spot = random.one_of(all);
  for (Step& step : spot.schedule->steps) {
    std::erase(step.after, spot.step);
    for (Part& part : step.parts) {
      if (part.after == spot.step) part.after = kNone;
    }
  }
  return true;
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

bool wrong_group(Schedules& schedules, Random& random) {
  const auto all = tiles(schedules);
  if (all.empty()) return false;
  TileProblem& asked = random.one_of(all).schedule->tiles;
  asked.group_offset += asked.group;
  return true;
}

/// Splits an exchange: its recvs first, its sends only after them. Returns the ranks it sends to
/// when there is something to wait for.
std::vector<int> receive_first(Schedule& schedule, StepId id) {
  const Step& exchange = schedule.steps[static_cast<size_t>(id)];
  Step recvs = exchange;
  Step sends = exchange;
  std::erase_if(recvs.messages, [](const Message& m) { return m.kind == TransferKind::kSend; });
  std::erase_if(sends.messages, [](const Message& m) { return m.kind == TransferKind::kRecv; });
  if (recvs.messages.empty() || sends.messages.empty()) return {};
  std::vector<int> peers;
  for (const Message& message : sends.messages) peers.push_back(message.peer);
  // Whoever waited for the exchange waits for the sends, and so for the recvs.
  insert_step(schedule, id, std::move(recvs));
  sends.after.push_back(id);
  schedule.steps[static_cast<size_t>(id) + 1] = std::move(sends);
  return peers;
}

/// Two ranks that send to each other in their first exchange both wait for the other's message.
bool deadlock(Schedules& schedules, Random&) {
  std::vector<std::vector<int>> peers(schedules.size());
  for (size_t rank = 0; rank < schedules.size(); ++rank) {
    Schedule& schedule = schedules[rank];
    const auto exchange =
        std::find_if(schedule.steps.begin(), schedule.steps.end(), [](const Step& s) {
          return s.kind == StepKind::kAllToAll || s.kind == StepKind::kAllGather;
        });
    if (exchange == schedule.steps.end()) continue;
    const auto id = static_cast<StepId>(exchange - schedule.steps.begin());
    peers[rank] = receive_first(schedule, id);
  }
  for (size_t a = 0; a < peers.size(); ++a) {
    for (const int b : peers[a]) {
      const std::vector<int>& back = peers[static_cast<size_t>(b)];
      if (std::find(back.begin(), back.end(), static_cast<int>(a)) != back.end()) return true;
    }
  }
  return false;
}

}  // namespace

const std::vector<Corruption>& corruptions() {
  static const std::vector<Corruption> all = {
      {"missing_recv", missing_recv},
      {"missing_send", missing_send},
      {"duplicate_tile", duplicate_tile},
      {"dropped_tile", dropped_tile},
      {"misplaced_tile", misplaced_tile},
      {"shifted_tile", shifted_tile},
      {"wrong_band", wrong_band},
      {"wrong_peer", wrong_peer},
      {"wrong_tag", wrong_tag},
      {"wrong_bytes", wrong_bytes},
      {"wrong_rows_in_message", wrong_rows_in_message},
      {"use_after_free", use_after_free},
      {"dropped_edge", dropped_edge},
      {"swapped_accumulate_source", swapped_accumulate_source},
      {"doubled_accumulate", doubled_accumulate},
      {"lost_partial", lost_partial},
      {"copy_of_wrong_row", copy_of_wrong_row},
      {"missing_result", missing_result},
      {"missing_output_fill", missing_output_fill},
      {"missing_accumulator_fill", missing_accumulator_fill},
      {"output_written_twice", output_written_twice},
      {"wrong_head_offset", wrong_head_offset},
      {"wrong_group", wrong_group},
      {"deadlock", deadlock},
  };
  return all;
}

}  // namespace longspan::test
