#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "schedule/check.h"
#include "schedule/matching.h"

namespace longspan::proof {
namespace {

Error fail(std::span<const Schedule> schedules, const MessageSide& side, std::string_view what) {
  return defect(schedules[static_cast<size_t>(side.rank())], side.step,
                side.message->buffers.empty() ? kNone : side.message->buffers.front(), what);
}

/// The k-th message that a rank posts to a peer is the k-th that the peer expects. Inside a step
/// messages are posted in the order of (tag, place).
Status same_order(std::span<const Schedule> schedules, const MessageSides& sides) {
  std::vector<size_t> order(sides.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto key = [&sides](size_t i) {
    const MessageSide& side = sides[i];
    return std::tuple(side.sender, side.receiver, side.receives, side.step, side.tag, i);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  size_t begin = 0;
  while (begin < order.size()) {
    const MessageSide& first = sides[order[begin]];
    const auto other_pair = [&](size_t i) {
      return sides[i].sender != first.sender || sides[i].receiver != first.receiver;
    };
    const auto end = static_cast<size_t>(
        std::find_if(order.begin() + static_cast<ptrdiff_t>(begin), order.end(), other_pair) -
        order.begin());
    const size_t half = (end - begin) / 2;  // messages match, so the sends are one half
    for (size_t i = begin; i < begin + half; ++i) {
      if (sides[order[i]].partner == order[i + half]) continue;
      return fail(schedules, sides[order[i + half]],
                  fmt::format("expects a message of rank {} with tag {} in another order than it "
                              "is sent",
                              first.sender, sides[order[i + half]].tag));
    }
    begin = end;
  }
  return {};
}

/// Runs all ranks as the executor would: steps in list order, transfers posted without waiting for
/// them. Those of a rank begin one after the other, and one ends when the other sides of all its
/// messages have begun.
class Lanes {
 public:
  Lanes(std::span<const Schedule> schedules, const MessageSides& sides)
      : schedules_(schedules),
        sides_(sides),
        begun_(sides.size(), 0),
        next_(schedules.size(), 0),
        lane_(schedules.size(), 0) {
    for (const Schedule& schedule : schedules) {
      first_step_.push_back(open_.size());
      for (const Step& step : schedule.steps) open_.push_back(step.messages.size());
    }
  }

  Status run() {
    for (size_t rank = schedules_.size(); rank > 0; --rank) ready_.push_back(rank - 1);
    while (!ready_.empty()) {
      const size_t rank = ready_.back();
      ready_.pop_back();
      do post(rank);
      while (advance(rank));
    }
    for (size_t rank = 0; rank < schedules_.size(); ++rank) {
      if (lane_[rank] == schedules_[rank].steps.size()) continue;
      return defect(schedules_[rank], static_cast<StepId>(lane_[rank]), kNone,
                    "deadlock: its messages wait for one another where each rank's transfers run "
                    "in the order of the list");
    }
    return {};
  }

 private:
  const Step& step(size_t rank, size_t id) const { return schedules_[rank].steps[id]; }
  size_t& open(size_t rank, size_t id) { return open_[first_step_[rank] + id]; }
  bool done(size_t rank, StepId id) { return open(rank, static_cast<size_t>(id)) == 0; }

  bool waits(size_t rank, const Step& step) {
    const auto late = [&](StepId id) { return id != kNone && !done(rank, id); };
    return std::any_of(step.after.begin(), step.after.end(), late) ||
           std::any_of(step.parts.begin(), step.parts.end(),
                       [&](const Part& part) { return late(part.after); });
  }

  /// The host goes on until a step waits.
  void post(size_t rank) {
    size_t& at = next_[rank];
    while (at < schedules_[rank].steps.size() && !waits(rank, step(rank, at))) ++at;
  }

  /// Begins posted transfers until one has to wait. Whether any ended.
  bool advance(size_t rank) {
    bool ended = false;
    for (size_t& at = lane_[rank]; at < next_[rank]; ++at) {
      if (step(rank, at).lane != Lane::kTransfer) continue;
      begin(rank, at);
      if (open(rank, at) > 0) return ended;
      ended = true;
    }
    return ended;
  }

  void begin(size_t rank, size_t id) {
    const size_t first = sides_.first(rank, id);
    for (size_t i = first; i < first + step(rank, id).messages.size(); ++i) {
      const MessageSide& side = sides_[i];
      if (begun_[i] != 0) return;  // the whole step has begun before
      begun_[i] = 1;
      if (begun_[side.partner] == 0) continue;
      --open(rank, id);
      const MessageSide& partner = sides_[side.partner];
      const auto other = static_cast<size_t>(partner.rank());
      if (--open(other, static_cast<size_t>(partner.step)) == 0) ready_.push_back(other);
    }
  }

  std::span<const Schedule> schedules_;
  const MessageSides& sides_;
  std::vector<char> begun_;         // per side
  std::vector<size_t> next_;        // of each rank: the step that the host is at
  std::vector<size_t> lane_;        // of each rank: steps before this one are done or no transfers
  std::vector<size_t> first_step_;  // of each rank, in `open_`
  std::vector<size_t> open_;        // messages of each step that have not met
  std::vector<size_t> ready_;       // ranks that may go on
};

}  // namespace

Status check_in_order(std::span<const Schedule> schedules) {
  const MessageSides sides(schedules);
  for (size_t i = 0; i < sides.size(); ++i) {
    if (sides[i].partner == kNobody) {
      return fail(schedules, sides[i], "the other side of a message is missing");
    }
  }
  LONGSPAN_CHECK_OK(same_order(schedules, sides));
  return Lanes(schedules, sides).run();
}

}  // namespace longspan::proof
