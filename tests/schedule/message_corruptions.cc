#include <algorithm>
#include <utility>

#include "schedule/spots.h"

namespace longspan::test {
namespace {

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

std::vector<Corruption> message_corruptions() {
  return {
      {"missing_recv", missing_recv}, {"missing_send", missing_send},
      {"wrong_peer", wrong_peer},     {"wrong_tag", wrong_tag},
      {"wrong_bytes", wrong_bytes},   {"wrong_rows_in_message", wrong_rows_in_message},
      {"dropped_edge", dropped_edge}, {"deadlock", deadlock},
  };
}

}  // namespace longspan::test
