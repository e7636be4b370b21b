#include <algorithm>
#include <utility>

#include "schedule/work.h"

namespace longspan {
namespace {

struct Arrival {
  size_t step = 0;
  const Message* message = nullptr;
  double posted = 0;
  bool begun = false;
};

/// Walks one list. A peer posts what this rank receives when this rank posts its own send of the
/// same tag and number; where there is none, it has posted already.
class Alone {
 public:
  Alone(const Schedule& schedule, const Topology& topology, const Rates& rates)
      : schedule_(schedule),
        topology_(topology),
        rates_(rates),
        cost_(cost_without_time(schedule)),
        first_arrival_(schedule.steps.size() + 1, 0),
        begun_by_(schedule.steps.size()) {
    pair();
  }

  Cost run() {
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      const Step& step = schedule_.steps[i];
      for (const StepId earlier : step.after) wait(earlier);
      cost_.spans[i].begin = step.lane == Lane::kTransfer ? kNotBegun : now_;
      if (step.lane == Lane::kTransfer) {
        post(i);
      } else if (step.parts.empty()) {
        compute(i, step_seconds(schedule_, step, rates_));
      } else {
        attend(i);
      }
    }
    for (Arrival& arrival : arrivals_) begin(arrival);
    for (Span& span : cost_.spans) cost_.seconds = std::max(cost_.seconds, span.end);
    return std::move(cost_);
  }

 private:
  using Tagged = std::pair<uint32_t, size_t>;

  void pair() {
    std::vector<Tagged> sends;  // tag and step
    std::vector<Tagged> recvs;  // tag and arrival
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      first_arrival_[i] = arrivals_.size();
      for (const Message& message : schedule_.steps[i].messages) {
        if (message.kind == TransferKind::kSend) {
          sends.push_back({message.tag, i});
        } else {
          recvs.push_back({message.tag, arrivals_.size()});
          arrivals_.push_back({.step = i, .message = &message});
        }
      }
    }
    first_arrival_.back() = arrivals_.size();
    std::sort(sends.begin(), sends.end());
    std::sort(recvs.begin(), recvs.end());
    size_t at = 0;
    for (const auto& [tag, arrival] : recvs) {
      while (at < sends.size() && sends[at].first < tag) ++at;
      const bool answered = at < sends.size() && sends[at].first == tag;
      const size_t own = arrivals_[arrival].step;
      begun_by_[answered ? std::max(own, sends[at++].second) : own].push_back(arrival);
    }
  }

  void wait(StepId id) {
    if (id == kNone) return;
    const auto step = static_cast<size_t>(id);
    if (schedule_.steps[step].kind == StepKind::kPull) return;
    for (size_t i = first_arrival_[step]; i < first_arrival_[step + 1]; ++i) begin(arrivals_[i]);
    now_ = std::max(now_, cost_.spans[step].end);
  }

  /// Receives; in turn with the others.
  void begin(Arrival& arrival, double earliest = 0) {
    if (std::exchange(arrival.begun, true)) return;
    carry(arrival.step, *arrival.message, std::max(arrival.posted, earliest), recv_free_);
  }

  void carry(size_t step, const Message& message, double earliest, double& free) {
    const double seconds = message_seconds(message, schedule_.rank, topology_, rates_);
    const double begin = std::max(earliest, free);
    free = begin + seconds;
    Span& span = cost_.spans[step];
    span.begin = span.begin == kNotBegun ? begin : std::min(span.begin, begin);
    span.end = std::max(span.end, free);
    cost_.transfer_seconds += seconds;
  }

  /// Beside what comes next.
  void pull(size_t step) {
    const double seconds = pull_seconds(schedule_, schedule_.steps[step], rates_);
    cost_.spans[step] = {static_cast<StepId>(step), now_, now_ + seconds};
    cost_.transfer_seconds += seconds;
  }

  void post(size_t step) {
    if (schedule_.steps[step].kind == StepKind::kPull) return pull(step);
    for (const Message& message : schedule_.steps[step].messages) {
      if (message.kind == TransferKind::kSend) carry(step, message, now_, send_free_);
    }
    for (size_t i = first_arrival_[step]; i < first_arrival_[step + 1]; ++i) {
      arrivals_[i].posted = now_;
    }
    for (const size_t arrival : begun_by_[step]) begin(arrivals_[arrival], now_);
  }

  void attend(size_t index) {
    double launch = rates_.launch_seconds;
    for (const Part& part : schedule_.steps[index].parts) {
      wait(part.after);
      if (&part == &schedule_.steps[index].parts.front()) cost_.spans[index].begin = now_;
      compute(index, launch + part_seconds(schedule_, part, rates_));
      launch = 0;
    }
  }

  void compute(size_t step, double seconds) {
    now_ += seconds;
    cost_.spans[step].end = now_;
    cost_.compute_seconds += seconds;
  }

  static constexpr double kNotBegun = -1;

  const Schedule& schedule_;
  const Topology& topology_;
  const Rates& rates_;
  Cost cost_;
  std::vector<Arrival> arrivals_;
  std::vector<size_t> first_arrival_;          // of each step
  std::vector<std::vector<size_t>> begun_by_;  // arrivals whose peers send when this step is posted
  double now_ = 0;
  double send_free_ = 0;
  double recv_free_ = 0;
};

}  // namespace

Cost cost(const Schedule& schedule, const Topology& topology, const Rates& rates) {
  return Alone(schedule, topology, rates).run();
}

}  // namespace longspan
