#include <algorithm>
#include <queue>

#include "schedule/matching.h"
#include "schedule/work.h"

namespace longspan {
namespace {

/// Either a rank goes on with its list, or a message (index of its send side) has arrived.
struct Event {
  double time = 0;
  int64_t order = 0;  // events of one time happen in the order in which they were planned
  bool arrival = false;
  size_t index = 0;

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

/// A rank walks its list as the executor does: it waits for what a step names, computes, and posts
/// transfers without waiting for them.
struct Walker {
  size_t step = 0;
  size_t part = 0;
  bool blocked = false;
  bool sending = false;
  bool receiving = false;
  std::vector<size_t> outbox;  // posted on both sides, in that order, not begun
  std::vector<size_t> inbox;
};

class Simulation {
 public:
  Simulation(std::span<const Schedule> schedules, const Topology& topology, const Rates& rates)
      : schedules_(schedules),
        topology_(topology),
        rates_(rates),
        sides_(schedules),
        posted_(sides_.size(), 0),
        walkers_(schedules.size()) {
    for (const Schedule& schedule : schedules) {
      costs_.push_back(cost_without_time(schedule));
      pending_.emplace_back();
      for (const Step& step : schedule.steps) pending_.back().push_back(step.messages.size());
    }
  }

  std::vector<Cost> run() {
    for (size_t rank = 0; rank < schedules_.size(); ++rank) plan(0, false, rank);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      event.arrival ? arrive(event.index) : walk(event.index);
    }
    for (Cost& cost : costs_) {
      for (Span& span : cost.spans) {
        span.begin = std::max(span.begin, 0.0);  // a message that met nobody has not begun
        cost.seconds = std::max(cost.seconds, span.end);
      }
    }
    return std::move(costs_);
  }

 private:
  void plan(double time, bool arrival, size_t index) {
    events_.push({time, planned_++, arrival, index});
  }

  bool done(size_t rank, StepId step) const {
    return step == kNone || pending_[rank][static_cast<size_t>(step)] == 0;
  }

  bool may_start(size_t rank, const Step& step) const {
    return std::all_of(step.after.begin(), step.after.end(),
                       [&](StepId earlier) { return done(rank, earlier); });
  }

  /// Goes on from now until the rank computes or has to wait.
  void walk(size_t rank) {
    Walker& walker = walkers_[rank];
    walker.blocked = false;
    const std::vector<Step>& steps = schedules_[rank].steps;
    for (; walker.step < steps.size(); ++walker.step) {
      const Step& step = steps[walker.step];
      if (walker.part == 0 && !may_start(rank, step)) {
        walker.blocked = true;
        return;
      }
      if (step.lane == Lane::kTransfer) {
        post(rank, step);
        continue;
      }
      if (step.parts.empty()) {
        compute(rank, step_seconds(schedules_[rank], step, rates_), true);
        ++walker.step;
        return;
      }
      if (walker.part < step.parts.size()) {
        attend(rank, step.parts[walker.part]);
        return;
      }
      walker.part = 0;
    }
  }

  void attend(size_t rank, const Part& part) {
    Walker& walker = walkers_[rank];
    if (!done(rank, part.after)) {
      walker.blocked = true;
      return;
    }
    const bool first = walker.part++ == 0;
    const double launch = first ? rates_.launch_seconds : 0;
    compute(rank, launch + part_seconds(schedules_[rank], part, rates_), first);
  }

  void compute(size_t rank, double seconds, bool begins) {
    Cost& cost = costs_[rank];
    Span& span = cost.spans[walkers_[rank].step];
    if (begins) span.begin = now_;
    span.end = now_ + seconds;
    cost.compute_seconds += seconds;
    plan(span.end, false, rank);
  }

  void post(size_t rank, const Step& step) {
    const size_t index = walkers_[rank].step;
    if (step.kind == StepKind::kPull) {  // beside what comes next
      const double seconds = pull_seconds(schedules_[rank], step, rates_);
      costs_[rank].spans[index] = {static_cast<StepId>(index), now_, now_ + seconds};
      costs_[rank].transfer_seconds += seconds;
      return;
    }
    costs_[rank].spans[index].begin = kNotBegun;
    const size_t first = sides_.first(rank, index);
    for (size_t i = first; i < first + step.messages.size(); ++i) {
      posted_[i] = 1;
      const size_t partner = sides_[i].partner;
      if (partner == kNobody || !posted_[partner]) continue;
      const size_t send = sides_[i].receives ? partner : i;
      walkers_[sender(send)].outbox.push_back(send);
      walkers_[receiver(send)].inbox.push_back(send);
      start_if_free(send);
    }
  }

  size_t sender(size_t send) const { return static_cast<size_t>(sides_[send].sender); }
  size_t receiver(size_t send) const { return static_cast<size_t>(sides_[send].receiver); }

  bool start_if_free(size_t send) {
    Walker& from = walkers_[sender(send)];
    Walker& to = walkers_[receiver(send)];
    if (from.sending || to.receiving) return false;
    from.sending = true;
    to.receiving = true;
    std::erase(from.outbox, send);
    std::erase(to.inbox, send);
    const double seconds =
        message_seconds(*sides_[send].message, sides_[send].sender, topology_, rates_);
    for (const size_t side : {send, sides_[send].partner}) {
      Cost& cost = costs_[static_cast<size_t>(sides_[side].rank())];
      Span& span = cost.spans[static_cast<size_t>(sides_[side].step)];
      if (span.begin == kNotBegun) span.begin = now_;
      cost.transfer_seconds += seconds;
    }
    plan(now_ + seconds, true, send);
    return true;
  }

  void arrive(size_t send) {
    Walker& from = walkers_[sender(send)];
    Walker& to = walkers_[receiver(send)];
    from.sending = false;
    to.receiving = false;
    for (const size_t side : {send, sides_[send].partner}) {
      const auto rank = static_cast<size_t>(sides_[side].rank());
      const auto step = static_cast<size_t>(sides_[side].step);
      costs_[rank].spans[step].end = now_;
      if (--pending_[rank][step] == 0 && walkers_[rank].blocked) {
        walkers_[rank].blocked = false;  // planned once
        plan(now_, false, rank);
      }
    }
    start_next(from.outbox);
    start_next(to.inbox);
  }

  void start_next(const std::vector<size_t>& box) {
    for (const size_t send : std::vector<size_t>(box)) {
      if (start_if_free(send)) return;
    }
  }

  static constexpr double kNotBegun = -1;

  std::span<const Schedule> schedules_;
  const Topology& topology_;
  const Rates& rates_;
  MessageSides sides_;
  std::vector<char> posted_;
  std::vector<Walker> walkers_;
  std::vector<Cost> costs_;
  std::vector<std::vector<size_t>> pending_;  // per rank and step: messages not done
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t planned_ = 0;
  double now_ = 0;
};

}  // namespace

std::vector<Cost> cost(std::span<const Schedule> schedules, const Topology& topology,
                       const Rates& rates) {
  return Simulation(schedules, topology, rates).run();
}

}  // namespace longspan
